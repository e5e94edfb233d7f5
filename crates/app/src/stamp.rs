//! Who has done something, and when.

use nix::unistd::{User, getuid};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// RFC 3339, in UTC. Times have one width, so that they sort as text.
const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// A time as records have it.
pub fn text(time: OffsetDateTime) -> String {
    // It holds no component that could be missing.
    time.format(TIME).unwrap_or_default()
}

/// The name of the user who runs this process, or has it run by sudo(8); without one the number.
pub(crate) fn user() -> String {
    if let Ok(user) = std::env::var("SUDO_USER") {
        return user;
    }
    let id = getuid();
    let user = User::from_uid(id).ok().flatten();
    user.map_or_else(|| format!("user {id}"), |user| user.name)
}
