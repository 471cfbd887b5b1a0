//! Numbers of a record in JSON, which has no NaN: they are null there.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

pub(super) fn or_nan<'a, D: Deserializer<'a>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

pub(super) fn all_or_nan<'a, D: Deserializer<'a>>(
    from: D,
) -> Result<BTreeMap<String, f64>, D::Error> {
    let all = BTreeMap::<String, Option<f64>>::deserialize(from)?;
    Ok(all.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect())
}

/// A whole number as text.
pub(super) mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in crate::record) fn serialize<S: Serializer>(
        number: &u64,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(number)
    }

    pub(in crate::record) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<u64, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
