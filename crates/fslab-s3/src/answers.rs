//! Parses the XML of a store's answers. Elements that are not needed are ignored.

use quick_xml::events::Event;
use serde::Deserialize;

/// An error reported by a store.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ToldError {
    /// The error code, such as `NoSuchKey`.
    pub code: String,
    pub message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ObjectsPage {
    #[serde(default)]
    pub contents: Vec<ListedObject>,
    /// Whether another page follows.
    pub is_truncated: bool,
    /// The token that requests the next page.
    pub next_continuation_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListedObject {
    pub key: String,
    /// The size in bytes.
    pub size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct UploadsPage {
    #[serde(rename = "Upload", default)]
    pub uploads: Vec<ListedUpload>,
    /// Whether another page follows.
    pub is_truncated: bool,
    /// The key that requests the next page.
    pub next_key_marker: Option<String>,
    /// The upload identifier that requests the next page, together with the key.
    pub next_upload_id_marker: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListedUpload {
    pub key: String,
    pub upload_id: String,
}

/// The answer to the start of a multipart upload.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BegunUpload {
    pub upload_id: String,
}

/// The versioning of a bucket.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Versioning {
    /// `Enabled` or `Suspended`. It is missing if the bucket never had versioning.
    pub status: Option<String>,
}

/// The object lock of a bucket.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ObjectLock {
    /// `Enabled`, if there is an object lock.
    pub object_lock_enabled: Option<String>,
    pub rule: Option<LockRule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct LockRule {
    pub default_retention: Option<DefaultRetention>,
}

/// The retention of new objects. One of the periods is missing or 0.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DefaultRetention {
    pub mode: Option<String>,
    #[serde(default)]
    pub days: u64,
    #[serde(default)]
    pub years: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct VersionsPage {
    #[serde(rename = "Version", default)]
    pub versions: Vec<ListedVersion>,
    /// Whether another page follows.
    pub is_truncated: bool,
    /// The key that requests the next page.
    pub next_key_marker: Option<String>,
    /// The version that requests the next page, together with the key.
    pub next_version_id_marker: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListedVersion {
    pub key: String,
    /// The size in bytes.
    pub size: u64,
    pub is_latest: bool,
}

/// The answer to the end of a multipart upload.
#[derive(Debug, Deserialize)]
pub struct EndedUpload {
    /// The checksum of the parts' checksums, and the number of parts.
    #[serde(rename = "ChecksumSHA256")]
    pub checksum: Option<String>,
}

/// Parses an answer whose root element has this name. Returns `None` for any other answer.
pub fn parse<T: serde::de::DeserializeOwned>(body: &[u8], name: &str) -> Option<T> {
    let text = std::str::from_utf8(body).ok()?;
    if root(text)? != name {
        return None;
    }
    quick_xml::de::from_str(text).ok()
}

/// Parses an answer whose root element has one of these names. Stores disagree about some names.
pub fn parse_any<T: serde::de::DeserializeOwned>(body: &[u8], names: &[&str]) -> Option<T> {
    names.iter().find_map(|name| parse(body, name))
}

/// Parses the error in an answer, if there is one.
pub fn error(body: &[u8]) -> Option<ToldError> {
    parse(body, "Error").filter(|told: &ToldError| !told.code.is_empty())
}

fn root(text: &str) -> Option<String> {
    let mut reader = quick_xml::Reader::from_str(text);
    loop {
        match reader.read_event().ok()? {
            Event::Start(element) | Event::Empty(element) => {
                return String::from_utf8(element.local_name().as_ref().to_vec()).ok();
            }
            Event::Eof => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"<?xml version="1.0" encoding="UTF-8"?>"#;

    #[test]
    fn lists_and_errors_are_read() {
        let list = format!(
            "{HEAD}<ListBucketResult xmlns=\"x\"><Name>b</Name><Contents><Key>a&amp;b</Key>\
             <Size>5</Size><Other><Deep/></Other></Contents><Contents><Key>c</Key><Size>6</Size>\
             </Contents><IsTruncated>true</IsTruncated><NextContinuationToken>t/+=\
             </NextContinuationToken></ListBucketResult>"
        );
        let page: ObjectsPage = parse(list.as_bytes(), "ListBucketResult").unwrap();
        let found: Vec<_> = page.contents.iter().map(|one| (one.key.as_str(), one.size)).collect();
        assert_eq!(found, [("a&b", 5), ("c", 6)]);
        assert_eq!(page.next_continuation_token.as_deref(), Some("t/+="));
        let told = format!("{HEAD}\n<Error><Code>NoSuchKey</Code><Message>m</Message></Error>");
        assert_eq!(error(told.as_bytes()).unwrap().code, "NoSuchKey");
        assert!(error(list.as_bytes()).is_none());
    }

    #[test]
    fn versions_and_delete_markers_may_alternate() {
        let marker = "<DeleteMarker><Key>a</Key><IsLatest>true</IsLatest></DeleteMarker>";
        let version = "<Version><Key>a</Key><Size>5</Size><IsLatest>false</IsLatest></Version>";
        let list = format!(
            "<ListVersionsResult><Name>b</Name>{marker}{version}{marker}{version}<IsTruncated>true\
             </IsTruncated><NextKeyMarker>a</NextKeyMarker><NextVersionIdMarker>v\
             </NextVersionIdMarker></ListVersionsResult>"
        );
        let page: VersionsPage = parse(list.as_bytes(), "ListVersionsResult").unwrap();
        let found: Vec<_> = page.versions.iter().map(|one| (one.size, one.is_latest)).collect();
        assert_eq!(found, [(5, false), (5, false)]);
        assert_eq!(page.next_version_id_marker.as_deref(), Some("v"));
    }

    #[test]
    fn rules_of_buckets_are_read() {
        let name = "ObjectLockConfiguration";
        let lock = format!(
            "<{name}><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>\
             COMPLIANCE</Mode><Days>30</Days></DefaultRetention></Rule></{name}>"
        );
        let lock: ObjectLock = parse(lock.as_bytes(), name).unwrap();
        let retention = lock.rule.unwrap().default_retention.unwrap();
        assert_eq!((retention.mode.as_deref(), retention.days), (Some("COMPLIANCE"), 30));
        let names = ["VersioningConfiguration", "GetBucketVersioningResponse"];
        for (name, is_known) in [(names[0], true), (names[1], true), ("ListBucketResult", false)] {
            for (status, expected) in [("", None), ("<Status>Enabled</Status>", Some("Enabled"))] {
                let body = format!("<{name}>{status}</{name}>");
                let read: Option<Versioning> = parse_any(body.as_bytes(), &names);
                assert_eq!(read.is_some(), is_known, "{body}");
                assert!(read.is_none_or(|read| read.status.as_deref() == expected), "{body}");
            }
        }
    }

    #[test]
    fn invalid_object_sizes_are_refused() {
        for size in ["-1", "18446744073709551616", "x", ""] {
            let list = format!(
                "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key>\
                 <Size>{size}</Size></Contents></ListBucketResult>"
            );
            let read = |list: &str| parse::<ObjectsPage>(list.as_bytes(), "ListBucketResult");
            assert!(read(&list).is_none(), "{size}");
            assert!(read(&list.replace(&format!("<Size>{size}"), "<Size>5")).is_some());
        }
    }

    /// An answer that is not a list must not be treated as an empty list, because all containers
    /// would then appear to be missing.
    #[test]
    fn answers_that_are_not_lists_are_refused() {
        for other in [
            "",
            " ",
            "<html></html>",
            "<Error><Code>InternalError</Code></Error>",
            "<ListBucketResult></ListBucketResult>",
            "<html><IsTruncated>false</IsTruncated></html>",
        ] {
            let list = parse::<ObjectsPage>(other.as_bytes(), "ListBucketResult");
            assert!(list.is_none(), "{other}");
        }
        let kept_alive = format!("{HEAD}   <Error><Code>InternalError</Code></Error>");
        assert_eq!(error(kept_alive.as_bytes()).unwrap().code, "InternalError");
        let name = "CompleteMultipartUploadResult";
        let ended: EndedUpload = parse(b"<CompleteMultipartUploadResult/>", name).unwrap();
        assert_eq!(ended.checksum, None);
        let ended = b"<CompleteMultipartUploadResult><ETag>&#34;e&#34;</ETag><ChecksumSHA256>x=-1\
            </ChecksumSHA256></CompleteMultipartUploadResult>";
        let ended: EndedUpload = parse(ended, name).unwrap();
        assert_eq!(ended.checksum.as_deref(), Some("x=-1"));
    }
}
