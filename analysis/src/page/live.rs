//! A page that is served while it changes: its body, and the whole of it with the script that takes
//! a new body from the server.

use super::Page;
use super::html::{self, ZOOM_SHA256};

/// What a browser may do with it: run our two scripts, and ask this server.
pub fn policy() -> String {
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; \
         script-src 'sha256-{ZOOM_SHA256}' 'sha256-{SCRIPT_SHA256}'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
}

/// What changes of a page.
pub fn body(page: &Page) -> String {
    html::body(page).into_string()
}

/// The page around a body; `state` says whether its run is under way.
pub fn whole(title: &str, state: &str, body: &str) -> String {
    html::live(title, state, body, SCRIPT).into_string()
}

const SCRIPT: &str = include_str!("live.js");
/// A browser runs no other script. `openssl dgst -sha256 -binary live.js | base64`
const SCRIPT_SHA256: &str = "wvYIQbCZYFrBxV+L3GvKvFppuLbyVf5YdXwR2U9aX6I=";

#[cfg(test)]
mod tests {
    use super::*;

    /// What a stranger has named is text, in the title and in the body.
    #[test]
    fn only_our_script_is_in_a_page() {
        let page = Page { title: "<script>".into(), ..Page::default() };
        let whole = whole(&page.title, "under way", &body(&page));
        assert_eq!(whole.matches("<script").count(), 2, "{whole}");
        assert!(whole.contains(SCRIPT) && whole.contains("&lt;script&gt;"), "{whole}");
    }
}
