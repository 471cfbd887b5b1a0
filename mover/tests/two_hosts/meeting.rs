//! Two hosts meet: what they say before the transfer begins.

use std::path::PathBuf;

use base::job::Location;
use base::settings::Settings;
use base::units::Tick;
use mover::wire::message::{Message, Open, Opened, Origin, Role};
use mover::wire::session::Session;

use super::TRANSFER;

/// The sessions of the source's and of the sink's host, of which one has started the other.
pub(crate) fn sessions(pushes: bool, settings: &Settings, now: Tick) -> (Session, Session) {
    let role = if pushes { Role::Source } else { Role::Sink };
    let mut near = Session::driver(role, "near", now);
    let mut far = Session::follower("far", now);
    near.hear(now, &far.hello()).expect("one version");
    far.hear(now, &near.hello()).expect("one version");
    let origin = Some(Origin { single: false, endless: false });
    let open = Message::Open(Box::new(Open {
        role: role.other(),
        locations: vec![Location::Path(PathBuf::from("there"))],
        settings: settings.clone(),
        ports: None,
        secret: base::secret::SharedSecret([0; 32]),
        fingerprint: [0; 32],
        origin: origin.filter(|_| pushes),
        window_bytes: 0,
        transfer: TRANSFER,
        listed: false,
    }));
    let opened = Message::Opened(Opened {
        fingerprint: [0; 32],
        port: 1,
        addresses: Vec::new(),
        origin: origin.filter(|_| !pushes),
        window_bytes: 0,
        rename: None,
        cut: settings.cut(),
    });
    far.hear(now, &open).expect("it is its turn");
    near.hear(now, &opened).expect("it is its turn");
    if pushes { (near, far) } else { (far, near) }
}
