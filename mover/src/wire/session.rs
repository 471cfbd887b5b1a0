//! The protocol as a state machine without sockets: which message is allowed when, from whom.

use super::message::{Message, Role, VERSION_MAX, VERSION_MIN};
use base::fault::{Class, Fault};
use base::limits::OBJECTS_IN_FLIGHT_MAX;
use base::settings::Settings;
use base::units::{Nanos, Tick};

/// How many pings an idle side sends in the time that the other one waits for it.
const PINGS_IN_STALL: u64 = 4;

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing received; the first message is a hello.
    Greeting,
    /// Versions agree; the driver opens, the other answers.
    Opening,
    /// Something is asked, and nothing is copied.
    Asking,
    /// Objects are offered, wanted, acknowledged and finished.
    Moving,
    /// The peer has sent its report.
    Reported,
}

/// One side's view of the session.
#[derive(Debug)]
pub struct Session {
    drives: bool,
    role: Option<Role>,
    phase: Phase,
    program: String,
    offered: u64,
    offer_ended: bool,
    answered: u64,
    settled: u64,
    heard: Tick,
    spoke: Tick,
    /// How long the peer may be silent.
    stall: Nanos,
}

impl Session {
    /// The side that starts the other one drives; its role is known from the start.
    pub fn driver(role: Role, program: &str, now: Tick) -> Session {
        Session::new(true, Some(role), program, now)
    }

    pub fn follower(program: &str, now: Tick) -> Session {
        Session::new(false, None, program, now)
    }

    fn new(drives: bool, role: Option<Role>, program: &str, now: Tick) -> Session {
        Session {
            drives,
            role,
            phase: Phase::Greeting,
            program: program.to_string(),
            offered: 0,
            offer_ended: false,
            answered: 0,
            settled: 0,
            heard: now,
            spoke: now,
            stall: Settings::default().stall,
        }
    }

    /// The side that asks something of the one that it starts.
    pub fn asking(program: &str, now: Tick) -> Session {
        Session::new(true, None, program, now)
    }

    /// How long the peer may be silent from now on.
    pub fn set_timeout(&mut self, now: Tick, stall: Nanos) {
        self.stall = stall;
        self.heard = now;
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The first message of either side.
    pub fn hello(&self) -> Message {
        Message::Hello { min: VERSION_MIN, max: VERSION_MAX, program: self.program.clone() }
    }

    /// Objects that may still be offered before some are settled.
    fn credit(&self) -> u64 {
        OBJECTS_IN_FLIGHT_MAX - (self.offered - self.settled)
    }

    /// Records a message that we send; it must be ours to send.
    pub fn say(&mut self, now: Tick, message: &Message) {
        self.spoke = now;
        let role = self.role;
        if let Err(fault) = self.account(role, message) {
            panic!("our own side broke the protocol: {fault}");
        }
    }

    /// Records a message from the peer, and refuses one that it may not send now.
    pub fn hear(&mut self, now: Tick, message: &Message) -> Result<(), Fault> {
        self.heard = now;
        match (self.phase, message) {
            (_, Message::Stop(_) | Message::Ping | Message::Warning { .. }) => Ok(()),
            (Phase::Greeting, Message::Hello { min, max, program }) => {
                self.agree(*min, *max, program)?;
                self.phase = Phase::Opening;
                Ok(())
            }
            (Phase::Opening, Message::Open(open)) if !self.drives => {
                self.role = Some(open.role);
                self.phase = Phase::Moving;
                Ok(())
            }
            (Phase::Opening, Message::Ask(_)) if !self.drives => {
                self.phase = Phase::Asking;
                Ok(())
            }
            (Phase::Asking, Message::Piece { .. }) if !self.drives => Ok(()),
            (Phase::Opening, Message::Answer(_)) if self.drives && self.role.is_none() => Ok(()),
            (Phase::Opening, Message::Opened(opened)) if self.drives => {
                if opened.origin.is_none() == (self.role == Some(Role::Sink)) {
                    return Err(Fault::peer("the far side's answer does not fit its role"));
                }
                self.phase = Phase::Moving;
                Ok(())
            }
            (Phase::Moving, Message::Carry(_)) if !self.drives => Ok(()),
            (Phase::Moving, Message::Samples { .. }) if self.drives => Ok(()),
            (
                Phase::Moving,
                Message::Enough
                | Message::Limit { .. }
                | Message::EndStream { .. }
                | Message::Cut(_),
            ) if self.drives => Err(out_of_turn(self.phase, message)),
            (Phase::Moving, Message::Report(_)) => {
                self.phase = Phase::Reported;
                Ok(())
            }
            (
                Phase::Moving,
                Message::Hello { .. }
                | Message::Open(_)
                | Message::Opened(_)
                | Message::Carry(_)
                | Message::Samples { .. }
                | Message::Ask(_)
                | Message::Piece { .. }
                | Message::Answer(_),
            ) => Err(out_of_turn(self.phase, message)),
            (Phase::Moving, message) => self.account(self.role.map(Role::other), message),
            (phase, message) => Err(out_of_turn(phase, message)),
        }
    }

    /// The message that keeps the connection known to be alive, when it is time. `is_peer_active`:
    /// the peer gave another sign of life, data on the same connection for instance.
    pub fn poll(&mut self, now: Tick, is_peer_active: bool) -> Result<Option<Message>, Fault> {
        if is_peer_active {
            self.heard = now;
        }
        if now.since(self.heard) > self.stall {
            return Err(Fault::new(
                Class::Unreachable,
                format!("nothing was heard from the other side for {}", now.since(self.heard)),
            ));
        }
        if now.since(self.spoke).0 < self.stall.0 / PINGS_IN_STALL {
            return Ok(None);
        }
        self.spoke = now;
        Ok(Some(Message::Ping))
    }

    fn agree(&self, min: u16, max: u16, program: &str) -> Result<(), Fault> {
        if min.max(VERSION_MIN) <= max.min(VERSION_MAX) {
            return Ok(());
        }
        Err(Fault::new(
            Class::Version,
            format!(
                "the two sides share no protocol version: here {} speaks {VERSION_MIN} to \
                 {VERSION_MAX}, there {program} speaks {min} to {max}; install the same \
                 datapump on both hosts",
                self.program
            ),
        ))
    }

    /// The counts that both sides must agree on, whichever of the two sends.
    fn account(&mut self, speaker: Option<Role>, message: &Message) -> Result<(), Fault> {
        match (speaker, message) {
            (Some(Role::Source), Message::Offer { first, entries }) => {
                let count = entries.len() as u64;
                if self.offer_ended || *first != self.offered || count == 0 || count > self.credit()
                {
                    return Err(Fault::peer("an offer out of order or beyond its credit"));
                }
                self.offered += count;
            }
            (Some(Role::Source), Message::OfferEnd { objects, .. }) => {
                if self.offer_ended || *objects != self.offered {
                    return Err(Fault::peer("an end of offers that does not fit the offers"));
                }
                self.offer_ended = true;
            }
            (Some(Role::Sink), Message::Want { first, wanted }) => {
                let count = wanted.len() as u64;
                if *first != self.answered || count > self.offered - self.answered {
                    return Err(Fault::peer("an answer to objects that were not offered"));
                }
                self.answered += count;
            }
            (Some(Role::Sink), Message::Finished { objects }) => {
                self.settle(objects.len() as u64)?
            }
            (Some(Role::Sink), Message::Held { objects }) => self.settle(objects.len() as u64)?,
            (Some(Role::Sink), Message::Failed { .. } | Message::Kept { .. }) => self.settle(1)?,
            (Some(Role::Sink), Message::Ack { .. } | Message::Names { .. }) => {}
            (Some(Role::Sink), Message::Enough | Message::DecompressionTime(_)) => {}
            (Some(Role::Sink), Message::Limit { .. } | Message::EndStream { .. }) => {}
            (Some(Role::Sink), Message::HeldRanges { .. } | Message::Cut(_)) => {}
            (Some(Role::Sink), Message::Extra { .. } | Message::Differing { .. }) => {}
            (Some(Role::Sink), Message::Deleted { .. } | Message::NotDeleted { .. }) => {}
            (Some(Role::Source), Message::Present { .. }) => {}
            (Some(Role::Source), Message::Unoffered { .. } | Message::PipeEnd { .. }) => {}
            (Some(Role::Source), Message::Doubt { .. }) => {}
            (_, Message::Carried(_) | Message::Lost { .. } | Message::Samples { .. }) => {}
            (_, Message::Offer { .. } | Message::OfferEnd { .. } | Message::Want { .. })
            | (_, Message::Finished { .. } | Message::Failed { .. } | Message::Ack { .. })
            | (_, Message::Unoffered { .. } | Message::PipeEnd { .. } | Message::Kept { .. })
            | (_, Message::Held { .. } | Message::Doubt { .. } | Message::Names { .. })
            | (_, Message::HeldRanges { .. } | Message::Cut(_) | Message::Present { .. })
            | (_, Message::Deleted { .. } | Message::NotDeleted { .. })
            | (_, Message::Enough | Message::Limit { .. } | Message::Extra { .. })
            | (_, Message::Differing { .. })
            | (_, Message::DecompressionTime(_) | Message::EndStream { .. }) => {
                return Err(Fault::peer("a message of the other role"));
            }
            (
                _,
                Message::Hello { .. } | Message::Open(_) | Message::Opened(_) | Message::Carry(_),
            )
            | (_, Message::Ask(_) | Message::Piece { .. } | Message::Answer(_))
            | (
                _,
                Message::Warning { .. } | Message::Report(_) | Message::Stop(_) | Message::Ping,
            ) => {}
        }
        Ok(())
    }

    fn settle(&mut self, objects: u64) -> Result<(), Fault> {
        self.settled += objects;
        match self.settled <= self.offered {
            true => Ok(()),
            false => Err(Fault::peer("more objects finished than were offered")),
        }
    }
}

fn out_of_turn(phase: Phase, message: &Message) -> Fault {
    Fault::peer(format!("the peer sent {} out of turn ({phase:?})", message.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::manifest::{Entry, EntryKind};
    use crate::wire::message::{Carries, Open, Opened, Origin, WantedRanges};
    use base::codec::DecompressionTime;
    use base::job::Location;
    use base::path::PathSample;
    use base::settings::Settings;

    fn open(role: Role) -> Message {
        Message::Open(Box::new(Open {
            role,
            locations: vec![Location::Stdio],
            settings: Settings::default(),
            ports: None,
            secret: base::secret::SharedSecret([0; 32]),
            fingerprint: [0; 32],
            origin: Some(Origin { single: true, endless: false }),
            window_bytes: 0,
            transfer: [0; 16],
            listed: false,
        }))
    }

    fn opened(origin: Option<Origin>) -> Message {
        Message::Opened(Opened {
            fingerprint: [0; 32],
            port: 1,
            addresses: Vec::new(),
            origin,
            window_bytes: 0,
            rename: None,
            cut: Settings::default().cut(),
        })
    }

    fn offer(first: u64, count: usize) -> Message {
        let entry = Entry {
            kind: EntryKind::File,
            size: 1,
            mtime_seconds: 0,
            mtime_nanos: 0,
            mode: 0,
            path: b"a".to_vec(),
            link_target: Vec::new(),
            ..Entry::default()
        };
        Message::Offer { first, entries: vec![entry; count] }
    }

    fn samples() -> Message {
        Message::Samples { stream: 0, samples: vec![PathSample::default()] }
    }

    /// Two sessions back to back: sends each message and expects all but the last to be accepted.
    fn check(lines: &[(bool, Message)], last: Option<Class>) {
        let now = Tick(0);
        let mut driver = Session::driver(Role::Source, "near", now);
        let mut follower = Session::follower("far", now);
        driver.hear(now, &follower.hello()).unwrap();
        follower.hear(now, &driver.hello()).unwrap();
        for (i, (by_driver, message)) in lines.iter().enumerate() {
            let heard = match by_driver {
                true => follower.hear(now, message),
                false => driver.hear(now, message),
            };
            let expect = if i + 1 == lines.len() { last } else { None };
            assert_eq!(heard.map_err(|fault| fault.class).err(), expect, "line {i}: {message:?}");
            if expect.is_none() {
                match by_driver {
                    true => driver.say(now, message),
                    false => follower.say(now, message),
                }
            }
        }
    }

    #[test]
    fn a_push() {
        let lines = [
            (true, open(Role::Sink)),
            (false, opened(None)),
            (true, offer(0, 2)),
            (false, Message::Want { first: 0, wanted: vec![WantedRanges::All, WantedRanges::All] }),
            (true, Message::OfferEnd { objects: 2, bytes: 2 }),
            (false, Message::Finished { objects: vec![(0, None)] }),
            (false, samples()),
            (false, Message::DecompressionTime(DecompressionTime::default())),
            (false, Message::Failed { object: 1, fault: Fault::usage("x") }),
            (false, Message::Report(Box::default())),
        ];
        check(&lines, None);
    }

    #[test]
    fn refusals() {
        let begun = [(true, open(Role::Sink)), (false, opened(None))];
        let cases = [
            (true, offer(1, 1)),
            (true, offer(0, OBJECTS_IN_FLIGHT_MAX as usize + 1)),
            (false, offer(0, 1)),
            (true, Message::Want { first: 0, wanted: vec![WantedRanges::All] }),
            (false, Message::Want { first: 0, wanted: vec![WantedRanges::All] }),
            (false, Message::Finished { objects: vec![(0, None)] }),
            (true, Message::OfferEnd { objects: 1, bytes: 0 }),
            (true, Message::Hello { min: 1, max: 1, program: String::new() }),
            (false, Message::Carry(Carries::First)),
            (true, samples()),
            (true, Message::Enough),
            (false, Message::Enough),
            (true, Message::Limit { rate: None }),
            (false, Message::Limit { rate: None }),
            (true, Message::EndStream { stream: 1 }),
            (false, Message::EndStream { stream: 1 }),
            (true, Message::DecompressionTime(DecompressionTime::default())),
        ];
        for case in cases {
            let lines: Vec<_> = begun.iter().cloned().chain([case]).collect();
            check(&lines, Some(Class::Peer));
        }
        check(&[(false, opened(Some(Origin { single: true, endless: false })))], Some(Class::Peer));
    }

    #[test]
    fn versions_are_both_named() {
        let mut near = Session::driver(Role::Source, "datapump 0.1.0", Tick(0));
        let hello =
            Message::Hello { min: VERSION_MAX + 1, max: 99, program: "datapump 9.9.9".into() };
        let fault = near.hear(Tick(0), &hello).unwrap_err();
        assert_eq!(fault.class, Class::Version);
        assert!(fault.text.contains("0.1.0") && fault.text.contains("9.9.9"), "{fault}");
    }

    #[test]
    fn silence_is_asked_about_and_ends() {
        let mut near = Session::driver(Role::Source, "near", Tick(0));
        assert_eq!(near.poll(Tick(1), false).unwrap(), None);
        assert_eq!(near.poll(Tick(2_500_000_000), false).unwrap(), Some(Message::Ping));
        assert_eq!(near.poll(Tick(2_500_000_001), false).unwrap(), None);
        let late = Tick(10_000_000_001);
        assert!(near.poll(late, false).is_err());
        assert!(near.poll(late, true).is_ok());
    }
}
