//! The walker: people who look, bid, buy and sell on an auction site, as the clients of RUBiS do.
//!
//! Each *session* is one person. It requests a page, thinks, and chooses what to do next by a transition table
//! ([`Mix`]): it follows a link of the page, sends one of its forms, goes back, or leaves. It has a cookie, signs in, and sends
//! hidden inputs back, and so walks any site that keeps to `demo/auction/PAGES.md`, whatever serves it.
//!
//! A session's choices are pure: randomness and pages are arguments. [`Walker`] drives the sessions on a thread of its own.
//! [`Run::live`] tells how things are going, and [`Summary`] what came of it, by [`Interaction`].
//!
//! # What the response times mean
//! They run from the sending of a request to the last byte of its page, with connecting. The time that a person waits for a page
//! delays the next request of that session alone. Under [`Sessions::Closed`] a slow site therefore gets fewer requests; under
//! [`Sessions::Open`] sessions arrive regardless, so that overload shows.
//!
//! Source: the transition tables and parameters of RUBiS 1.4.3, (C) 2002 Rice University, by Emmanuel Cecchet and Julie Marguerite.

mod config;
mod interaction;
mod page;
mod report;
mod run;
mod session;
mod table;
mod visitor;

pub use config::{AT_ONCE_MAX, Sessions, THINK_FACTOR_MAX, WalkConfig};
pub use interaction::Interaction;
pub use report::{Completion, End, InteractionSummary, SessionsSummary, Summary};
pub use run::{Run, Stopper, Walker};
pub use table::{INTERACTIONS_MEAN, Mix, Rows};
