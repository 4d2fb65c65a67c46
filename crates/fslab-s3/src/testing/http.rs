//! The part of HTTP/1.1 that test servers need.

use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;

const BODY_BYTES_MAX: usize = 256 << 20;

/// A request or an answer.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The first line.
    pub first: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Message {
    /// Creates an answer.
    pub fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let headers = headers.iter().map(own).collect();
        Self { first: format!("HTTP/1.1 {status} X"), headers, body: body.into() }
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// Returns the method and the target of a request.
    pub fn target(&self) -> (&str, &str) {
        let mut words = self.first.split(' ');
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    }

    /// Reads a message. Returns `None` if the connection ended before it.
    pub fn read(from: &mut BufReader<TcpStream>, has_body: bool) -> io::Result<Option<Self>> {
        let mut message = Self::default();
        if from.read_line(&mut message.first)? == 0 {
            return Ok(None);
        }
        message.first = message.first.trim_end().to_owned();
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            message.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if has_body {
            message.read_body(from)?;
        }
        Ok(Some(message))
    }

    fn read_body(&mut self, from: &mut BufReader<TcpStream>) -> io::Result<()> {
        if self.header("transfer-encoding").is_some_and(|how| how.contains("chunked")) {
            loop {
                let mut line = String::new();
                from.read_line(&mut line)?;
                let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
                self.take(from, length)?;
                from.read_line(&mut line)?;
                if length == 0 {
                    return Ok(());
                }
            }
        }
        match self.header("content-length").map(str::parse) {
            Some(length) => self.take(from, length.map_err(io::Error::other)?),
            None => Ok(()),
        }
    }

    fn take(&mut self, from: &mut impl Read, length: usize) -> io::Result<()> {
        if self.body.len() + length > BODY_BYTES_MAX {
            return Err(io::Error::other("the body is too long"));
        }
        let start = self.body.len();
        self.body.resize(start + length, 0);
        from.read_exact(&mut self.body[start..])
    }

    /// Returns the bytes of the message, with the length of the body and a header that closes the
    /// connection.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes_of_length(self.body.len())
    }

    /// Returns the bytes of the message as the answer to a request. The answer to HEAD has no body,
    /// but its header has the length of the object.
    pub fn bytes_for(&self, request: &Self) -> Vec<u8> {
        let length = self.header("content-length").and_then(|length| length.parse().ok());
        match length.filter(|_| request.target().0 == "HEAD") {
            Some(length) => self.bytes_of_length(length),
            None => self.bytes(),
        }
    }

    /// Returns the bytes of the message, with this `content-length`, which may be wrong.
    pub fn bytes_of_length(&self, length: usize) -> Vec<u8> {
        let mut bytes = format!("{}\r\n", self.first).into_bytes();
        let own = ["content-length", "transfer-encoding", "connection"];
        for (name, value) in self.headers.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
            bytes.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        bytes.extend(format!("content-length: {length}\r\nconnection: close\r\n\r\n").into_bytes());
        bytes.extend(&self.body);
        bytes
    }
}
