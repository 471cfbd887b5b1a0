//! Which symbolic links stay within the tree that is copied: `--links safe`.

/// True for a link at `path` (from the destination) that leads, or could be made to lead, out of
/// what is copied: an absolute one, one that goes up more levels than its depth, and one that goes
/// up after it went down, as what it goes down through may be a link itself (CVE-2024-12088).
pub(crate) fn leads_out(path: &[u8], target: &[u8]) -> bool {
    if target.is_empty() || target[0] == b'/' {
        return true;
    }
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    let mut went_down = false;
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" => {}
            b".." if went_down || depth == 0 => return true,
            b".." => depth -= 1,
            _ => went_down = true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out() {
        let cases = [
            ("l", "a", false),
            ("l", "a/b/c", false),
            ("l", ".", false),
            ("l", "./a//b/", false),
            ("d/e/l", "..//../a", false),
            ("l", "..a/b", false),
            ("d/l", "../a", false),
            ("d/e/l", "../../a", false),
            ("d/l", "..", false),
            ("l", "", true),
            ("l", "/", true),
            ("d/l", "/etc/passwd", true),
            ("l", "..", true),
            ("l", "../a", true),
            ("d/l", "../../a", true),
            ("d/l", "./.././../a", true),
            ("d/e/l", "./../a", true),
            ("d/l", "a/../../../b", true),
            ("d/l", "a/../b", true),
            ("d/l", "a/..", true),
        ];
        for (path, target, expect) in cases {
            assert_eq!(leads_out(path.as_bytes(), target.as_bytes()), expect, "{path} {target}");
        }
    }
}
