//! The options of object stores.

use std::path::PathBuf;

use super::kind::Kind;
use super::{AnyOption, CliOption, Group};
use crate::cli::command_id::CommandId;
use base::units::Nanos;
use s3::Addressing;

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] =
    &[&S3_ENDPOINT, &S3_PROFILE, &S3_REGION, &S3_CA, &S3_ADDRESSING, &S3_REQUESTER_PAYS, &MIN_AGE];

const STORES: &[CommandId] = &[
    CommandId::Copy,
    CommandId::Verify,
    CommandId::Compare,
    CommandId::Ls,
    CommandId::Clean,
    CommandId::Measure,
    CommandId::Sweep,
];

pub(crate) static S3_ENDPOINT: CliOption<String> = CliOption {
    name: "s3-endpoint",
    letter: None,
    value: "URL",
    kind: Kind::Text(|url| url),
    default: "",
    help: "Where the store of s3://BUCKET/KEY is",
    more: "As https://HOST[:PORT]. Not given, it is what AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or \
           the profile's endpoint_url says, or AWS itself.",
    group: Group::Stores,
    commands: STORES,
};

pub(crate) static S3_PROFILE: CliOption<String> = CliOption {
    name: "s3-profile",
    letter: None,
    value: "NAME",
    kind: Kind::Text(|name| name),
    default: "",
    help: "The profile of ~/.aws/config and ~/.aws/credentials",
    more: "What it says comes before AWS' variables. Not given, credentials are looked for where \
           AWS' tools do: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile (AWS_PROFILE, \
           or default), its credential_process, the container, the instance.",
    group: Group::Stores,
    commands: STORES,
};

pub(crate) static S3_REGION: CliOption<String> = CliOption {
    name: "s3-region",
    letter: None,
    value: "NAME",
    kind: Kind::Text(|name| name),
    default: "",
    help: "The region that the bucket is in",
    more: "Not given, it is what AWS_REGION, AWS_DEFAULT_REGION or the profile says, or us-east-1.",
    group: Group::Stores,
    commands: STORES,
};

pub(crate) static S3_CA: CliOption<PathBuf> = CliOption {
    name: "s3-ca",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Certificates to trust instead of the system's",
    more: "In the form PEM. Not given, it is what AWS_CA_BUNDLE or the profile's ca_bundle says.",
    group: Group::Stores,
    commands: STORES,
};

pub(crate) static S3_ADDRESSING: CliOption<Addressing> = CliOption {
    name: "s3-addressing",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(&["auto", "path", "host"], |i| {
        [Addressing::Auto, Addressing::Path, Addressing::Host][i]
    }),
    default: "auto",
    help: "Where the bucket's name is in a request",
    more: "With auto in front of the host's name at AWS, and in the path with an endpoint of your \
           own.",
    group: Group::Stores,
    commands: STORES,
};

pub(crate) static S3_REQUESTER_PAYS: CliOption<bool> = CliOption {
    name: "s3-requester-pays",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Agree to pay for requests to a bucket that asks for it",
    more: "",
    group: Group::Stores,
    commands: STORES,
};

pub(crate) static MIN_AGE: CliOption<Nanos> = CliOption {
    name: "min-age",
    letter: None,
    value: "TIME",
    kind: Kind::Time(|time| time),
    default: "24h",
    help: "Remove uploads to an object store that were begun this long ago",
    more: "A store does not say whether somebody still writes one. Folders need no age: a copy \
           that is running holds its files.",
    group: Group::Stores,
    commands: &[CommandId::Clean],
};
