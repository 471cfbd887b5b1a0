//! All tests that run the built program, or several modules of it, as one test program, which is
//! linked once. `cargo test --test integration copy::` runs one file of them.

mod support;

mod addresses;
mod bad_input;
mod compress;
mod copy;
mod corpus;
mod diagnosis;
mod doctor;
mod ends;
mod exam;
mod examples;
mod folders;
mod habits;
mod heal;
mod holes;
mod hostile;
mod hostile_floods;
mod hostile_names;
mod install;
mod links;
mod measure;
mod mirror;
mod model;
mod net_test;
mod no_room;
mod path;
mod paths;
mod pauses;
mod prediction;
mod proxy;
mod published;
mod restricted;
mod results;
mod resume;
mod seals;
mod selection;
mod snapshots;
mod soaker;
mod start;
mod sweep;
mod terminal;
mod torture;
mod trees;
mod windows;
