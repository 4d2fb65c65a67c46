//! The XML of answers. What is not needed is not read.

use quick_xml::events::Event;
use serde::Deserialize;

/// An error, as a store tells it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ToldError {
    /// A word, such as `NoSuchKey`.
    pub code: String,
    /// A sentence.
    pub message: String,
}

/// One page of a list of objects.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ObjectsPage {
    /// The objects.
    #[serde(default)]
    pub contents: Vec<ListedObject>,
    /// Whether another page follows.
    pub is_truncated: bool,
    /// What to ask for it with.
    pub next_continuation_token: Option<String>,
}

/// An object in a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListedObject {
    /// Its name.
    pub key: String,
    /// Its bytes.
    pub size: u64,
}

/// One page of a list of uploads in parts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct UploadsPage {
    /// The uploads.
    #[serde(rename = "Upload", default)]
    pub uploads: Vec<ListedUpload>,
    /// Whether another page follows.
    pub is_truncated: bool,
    /// What to ask for it with.
    pub next_key_marker: Option<String>,
    /// What to ask for it with, too.
    pub next_upload_id_marker: Option<String>,
}

/// An upload in a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListedUpload {
    /// The name of the object.
    pub key: String,
    /// The name of the upload.
    pub upload_id: String,
}

/// The answer to the beginning of an upload in parts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BegunUpload {
    /// The name of the upload.
    pub upload_id: String,
}

/// Reads an answer whose outermost element has this name; none if it is something else.
pub fn parse<T: serde::de::DeserializeOwned>(body: &[u8], name: &str) -> Option<T> {
    let text = std::str::from_utf8(body).ok()?;
    if root(text)? != name {
        return None;
    }
    quick_xml::de::from_str(text).ok()
}

/// Reads the error in an answer, if there is one.
pub fn error(body: &[u8]) -> Option<ToldError> {
    parse(body, "Error").filter(|told: &ToldError| !told.code.is_empty())
}

/// Whether the outermost element of an answer has this name.
pub fn is(body: &[u8], name: &str) -> bool {
    std::str::from_utf8(body).ok().and_then(root).is_some_and(|found| found == name)
}

/// The name of the outermost element.
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
    fn sizes_that_no_object_has_are_refused() {
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

    /// What is no list must not pass for an empty one: all containers would count as missing.
    #[test]
    fn other_answers_are_no_lists() {
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
        assert!(is(b"<CompleteMultipartUploadResult/>", "CompleteMultipartUploadResult"));
    }
}
