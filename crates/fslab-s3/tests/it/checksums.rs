//! Proofs of transfer: checksums that the store verifies, or reading back.

use std::sync::Arc;

use fslab_s3::testing::{Fault, Hashing, MemoryStore, Place};
use fslab_tier::archive::{Archive, EncryptedArchive, Key, Proof};

use crate::support::{ARCHIVE, Same, TIER, World, contents, files, listed, noise};

/// The size of a container that is sent in three parts.
const THREE_PARTS: usize = (17 << 20) + 3;

/// Writes a container, as the tier engine does: reads it back if it is not proved.
fn write_proved(archive: &dyn Archive, number: u8, bytes: &[u8]) -> Result<Proof, String> {
    let told = |error: std::io::Error| error.to_string();
    let mut upload = archive.begin(files(number)).map_err(told)?;
    upload.write(bytes).map_err(told)?;
    let proof = upload.finish().map_err(told)?;
    if proof == Proof::ReadBack {
        archive.forget(files(number));
        let found = contents(archive, files(number)).map_err(told)?;
        if found != bytes {
            return Err("what was read back differs".to_owned());
        }
    }
    Ok(proof)
}

/// The ways in which a store can fail to verify checksums. Each alone must lead to reading back.
fn not_verifying() -> Vec<(&'static str, Hashing)> {
    let right = Hashing::default();
    vec![
        ("verifies nothing", Hashing::NONE),
        ("verifies only the signed hash", Hashing { verifies_signed: true, ..Hashing::NONE }),
        ("ignores the checksums of objects", Hashing { verifies_objects: false, ..right }),
        ("ignores the checksums of parts", Hashing { verifies_parts: false, ..right }),
        ("keeps objects that it refuses", Hashing { keeps_refused: true, ..right }),
        ("does not report joined checksums", Hashing { reports_joined: false, ..right }),
        ("refuses checksums", Hashing { refuses_checksums: true, ..right }),
        ("refuses checksums of parts", Hashing { refuses_part_checksums: true, ..right }),
    ]
}

#[test]
fn only_stores_that_verify_checksums_prove_objects_by_them() {
    assert_eq!(World::new().open().proof(), Proof::Checksum);
    for (what, hashing) in not_verifying() {
        let world = World::of(hashing);
        let archive = world.open();
        assert_eq!(archive.proof(), Proof::ReadBack, "a store that {what}");
        for length in [1000, THREE_PARTS] {
            let proof = write_proved(&*archive, 1, &noise(1, length));
            assert_eq!(proof, Ok(Proof::ReadBack), "a store that {what}, {length} bytes");
        }
        assert_eq!(world.store.keys("/probe/"), Vec::<String>::new(), "{what}");
        assert_eq!(world.store.uploads(), Vec::<String>::new(), "{what}");
    }
}

/// A refusal counts only if its code says that the data is damaged. Any other refusal may have
/// another reason, such as a missing permission or a proxy.
#[test]
fn probe_of_checksums_trusts_no_unrelated_refusal() {
    for code in ["InvalidRequest", "AccessDenied", "NotImplemented", "Odd"] {
        let world = World::of(Hashing { code, ..Hashing::default() });
        assert_eq!(world.open().proof(), Proof::ReadBack, "{code}");
    }
}

/// A bit is flipped in every kind of upload request, once and always. No flip is stored under a
/// successful write, whether the store verifies checksums or the data is read back.
#[test]
fn every_flip_in_transit_is_found_at_upload() {
    // The double does not compare the signed hash, so that only the checksum can show a flip.
    let verifying = Hashing { verifies_signed: false, ..Hashing::default() };
    for (hashing, expected) in [(verifying, Proof::Checksum), (Hashing::NONE, Proof::ReadBack)] {
        for (length, target) in [(1000, "/files/"), (THREE_PARTS, "partNumber")] {
            let world = World::of(hashing);
            let archive = world.open();
            assert_eq!(archive.proof(), expected);
            world.proxy.add("PUT", target, Fault::FlipSent, 1);
            let once = write_proved(&*archive, 1, &noise(1, length));
            match expected {
                // The store refused the request, which was then sent again.
                Proof::Checksum => assert_eq!(once, Ok(expected), "{target}"),
                Proof::ReadBack => {
                    let error = once.unwrap_err();
                    assert_eq!(error, "what was read back differs", "{target}");
                }
            }
            world.proxy.add("PUT", target, Fault::FlipSent, u32::MAX);
            let always = write_proved(&*archive, 2, &noise(2, length)).unwrap_err();
            match expected {
                Proof::Checksum => {
                    assert!(always.contains("BadDigest") && always.contains("damaged"), "{always}");
                    assert_eq!(listed(&*archive).unwrap().len(), 1, "{target}");
                }
                Proof::ReadBack => assert_eq!(always, "what was read back differs"),
            }
            world.proxy.clear();
            assert_eq!(write_proved(&*archive, 3, &noise(3, length)), Ok(expected));
            assert_eq!(contents(&*archive, files(3)).unwrap(), noise(3, length));
        }
    }
}

/// Like the test above, for bits from the first to the last one of an object.
#[test]
fn flips_of_any_bit_are_found_at_upload() {
    const BYTES: usize = 1000;
    let verifying = Hashing { verifies_signed: false, ..Hashing::default() };
    for (hashing, expected) in [(verifying, Ok(Proof::Checksum)), (Hashing::NONE, Err(()))] {
        let world = World::of(hashing);
        let archive = world.open();
        for number in 0..=20 {
            let bit = number * (BYTES * 8 - 1) / 20;
            world.proxy.add("PUT", "/files/", Fault::FlipSentAt(bit), 1);
            let requests = world.proxy.count("PUT", "/files/");
            let written = write_proved(&*archive, number as u8, &noise(1, BYTES));
            assert_eq!(written.map_err(drop), expected, "bit {bit}");
            let requests = world.proxy.count("PUT", "/files/") - requests;
            assert_eq!(requests, 1 + usize::from(expected.is_ok()), "bit {bit}");
        }
    }
}

/// A store that joins parts wrongly reports another checksum, or none. Neither is taken for a
/// proof.
#[test]
fn joined_parts_are_proved_only_by_the_right_checksum() {
    let world = World::new();
    let archive = world.open();
    let name = "CompleteMultipartUploadResult";
    for (told, expected) in [
        (format!("<{name}/>"), "read back"),
        (format!("<{name}><ChecksumSHA256>AAAA-3</ChecksumSHA256></{name}>"), "another checksum"),
    ] {
        world.proxy.add("POST", "uploadId", Fault::DoneButTold(200, told), 1);
        let written = write_proved(&*archive, 1, &noise(1, THREE_PARTS));
        match expected {
            "read back" => assert_eq!(written, Ok(Proof::ReadBack)),
            expected => assert!(written.as_ref().unwrap_err().contains(expected), "{written:?}"),
        }
    }
}

/// A store that reports the checksum of other bytes than were sent is not believed.
#[test]
fn answer_with_another_checksum_fails_the_upload() {
    let world = World::new();
    let archive = world.open();
    world.proxy.add("PUT", "/files/", Fault::OtherChecksum, 1);
    let error = write_proved(&*archive, 1, b"hello").unwrap_err();
    assert!(error.contains("another checksum"), "{error}");
}

/// The requests of the proofs, counted at the wire.
#[test]
fn nothing_is_read_back_where_checksums_are_true() {
    for (hashing, expected) in [(Hashing::default(), 0), (Hashing::NONE, 2 * THREE_PARTS + 2000)] {
        let world = World::of(hashing);
        let archive = world.open();
        let before = world.proxy.sent_bytes("GET", "/files/");
        for (number, length) in [(1, 1000), (2, THREE_PARTS)] {
            write_proved(&*archive, number, &noise(number, length)).unwrap();
            // Replacing a container needs the same proof.
            write_proved(&*archive, number, &noise(number + 2, length)).unwrap();
        }
        let read = world.proxy.sent_bytes("GET", "/files/") - before;
        // Without checksums, a replaced container is read back by the archive, too.
        let expected = if expected == 0 { 0 } else { expected + THREE_PARTS + 1000 };
        assert_eq!(read, expected, "{hashing:?}");
        assert_eq!(contents(&*archive, files(2)).unwrap(), noise(4, THREE_PARTS));
        assert_eq!(world.store.keys("/files/").len(), 2);
    }
}

/// Encryption passes the proof of the inner archive on.
#[test]
fn encrypted_archives_have_the_proof_of_their_store() {
    for (hashing, expected) in
        [(Hashing::default(), Proof::Checksum), (Hashing::NONE, Proof::ReadBack)]
    {
        let world = World::of(hashing);
        let archive = EncryptedArchive::new(world.open(), Key::new([5; 32]), Arc::new(Same));
        assert_eq!(archive.proof(), expected);
        assert_eq!(write_proved(&archive, 1, &noise(1, 5000)), Ok(expected));
    }
}

/// Checksums are verified again at each opening: a store may have changed.
#[test]
fn checksums_are_tested_at_each_opening() {
    let store = MemoryStore::start().unwrap();
    let place = Place::new(store.port(), "a/b;lease=2").unwrap();
    place.make(ARCHIVE, TIER).unwrap();
    for (hashing, expected) in [
        (Hashing::default(), Proof::Checksum),
        (Hashing::NONE, Proof::ReadBack),
        (Hashing::default(), Proof::Checksum),
    ] {
        store.set_hashing(hashing);
        assert_eq!(place.open(TIER, None).unwrap().proof(), expected);
    }
}
