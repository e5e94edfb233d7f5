//! What an edge decides at each request.

mod allocation;
