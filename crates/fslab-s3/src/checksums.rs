//! Tests whether a store verifies the checksums of the data that it receives. Only then new objects
//! need not be read back.
//!
//! The signature of a request also covers the body, by `x-amz-content-sha256`. This hash does not
//! count as a proof: it authenticates a request, some stores never compare it with the body, and
//! nothing like it covers the joining of parts.

use bytes::Bytes;
use fslab_tier::archive::Proof;

use crate::bucket::{Bucket, Claim, Result, When};
use crate::keys::PROBES;
use crate::random::random;
use crate::transport::{Cause, Failure};

const FIRST: Bytes = Bytes::from_static(b"the content of this test");
const OTHER: Bytes = Bytes::from_static(b"other content");

/// Sends data with wrong checksums, as an object and as a part. Returns [`Proof::Checksum`] if the
/// store refuses both, because of their checksums.
///
/// # Errors
/// Fails if the store can't be reached. Any other unexpected answer only means that checksums are
/// not a proof.
pub fn probe_checksums(bucket: &Bucket) -> Result<Proof> {
    let key = format!("{PROBES}{:016x}", random());
    bucket.send_part_checksums(true);
    let verified = verifies_objects(bucket, &key)
        .and_then(|verifies| Ok(verifies && verifies_parts(bucket, &key)?));
    if let Err(failure) = bucket.delete(&key) {
        tracing::debug!("can't delete {key}: {failure}");
    }
    if !matches!(verified, Ok(true)) {
        bucket.send_part_checksums(false);
    }
    match verified {
        Ok(true) => Ok(Proof::Checksum),
        Ok(false) => Ok(Proof::ReadBack),
        Err(failure) if matches!(failure.cause, Cause::Unavailable | Cause::NoBucket) => {
            Err(failure)
        }
        Err(failure) => {
            tracing::info!(
                "{bucket}: can't test checksums, so new objects are read back: {failure}"
            );
            Ok(Proof::ReadBack)
        }
    }
}

/// Returns whether the store compares the hash in the signature with the body, as object and as
/// part. For information only.
///
/// # Errors
/// Fails if a request fails.
#[cfg(feature = "testing")]
pub fn verifies_signed_hash(bucket: &Bucket) -> Result<bool> {
    let key = format!("{PROBES}{:016x}", random());
    let put = bucket.put_with(Claim::WrongSignedHash, &key, OTHER, When::Always);
    let verifies = is_refused(put.map(drop))?;
    bucket.delete(&key)?;
    Ok(verifies)
}

fn verifies_objects(bucket: &Bucket, key: &str) -> Result<bool> {
    bucket.put(key, FIRST, When::Always)?;
    let put = bucket.put_with(Claim::WrongChecksum, key, OTHER, When::Always);
    // A store that refuses data but keeps it would have replaced the object.
    Ok(is_refused(put.map(drop))? && bucket.get(key)?.bytes == FIRST)
}

fn verifies_parts(bucket: &Bucket, key: &str) -> Result<bool> {
    let upload = bucket.begin_parts(key)?;
    let send = |claim, body| {
        let sending = bucket.send_part_with(claim, key, &upload, (1, body))?;
        Bucket::sent_part(sending)
    };
    let verified = is_refused(send(Claim::WrongChecksum, OTHER).map(drop)).and_then(|refused| {
        // The parts must also be joined under the control of their checksums.
        Ok(refused && bucket.end_parts(key, &upload, &[send(Claim::True, FIRST)?])?)
    });
    if !matches!(verified, Ok(true))
        && let Err(failure) = bucket.drop_parts(key, &upload)
    {
        tracing::debug!("can't remove the parts of {key}: {failure}");
    }
    verified
}

/// Returns whether a store refused data because of its hash.
fn is_refused(sent: Result<()>) -> Result<bool> {
    match sent {
        Ok(()) => Ok(false),
        Err(Failure { cause: Cause::Damaged, .. }) => Ok(true),
        Err(failure) => Err(failure),
    }
}
