//! The protocols over every order of their operations.

mod model;
