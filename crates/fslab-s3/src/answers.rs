//! The XML of answers. What is not needed is not read.

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
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ObjectsPage {
    /// The objects.
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
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct UploadsPage {
    /// The uploads.
    #[serde(rename = "Upload")]
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

/// Reads an answer; none if it is not one of this kind.
pub fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Option<T> {
    quick_xml::de::from_str(std::str::from_utf8(body).ok()?).ok()
}

/// Reads the error in an answer, if there is one.
pub fn error(body: &[u8]) -> Option<ToldError> {
    let text = std::str::from_utf8(body).ok()?;
    let is_error = text.trim_start().starts_with("<Error")
        || text.contains("?><Error")
        || text.lines().any(|line| line.trim_start().starts_with("<Error"));
    let told: ToldError = quick_xml::de::from_str(text).ok().filter(|_| is_error)?;
    (!told.code.is_empty()).then_some(told)
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
        let page: ObjectsPage = parse(list.as_bytes()).unwrap();
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
                "<ListBucketResult><Contents><Key>a</Key><Size>{size}</Size></Contents>\
                 </ListBucketResult>"
            );
            assert!(parse::<ObjectsPage>(list.as_bytes()).is_none(), "{size}");
        }
    }
}
