//! A proxy on loopback that injects faults between a client and a store.

use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::http::Message;
use crate::transport::{CHECKSUM, base64};

/// A fault that the proxy injects into a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The request is delayed.
    Delay(Duration),
    /// The proxy answers with a status and optionally `Retry-After` in seconds. The store does not
    /// receive the request.
    Status(u16, Option<u32>),
    /// The proxy answers with a status and a body. The store does not receive the request.
    Told(u16, String),
    /// The answer is a redirect.
    Redirect(u16, String),
    /// The store executes the request, but the answer has this status.
    DoneBut(u16),
    /// The store executes the request, but the answer has this status and this body.
    DoneButTold(u16, String),
    /// The connection breaks before the request reaches the store.
    Reset,
    /// The store executes the request, but the connection breaks before the answer.
    DoneAndReset,
    /// The answer lacks its last byte.
    Short,
    /// The answer has an additional byte.
    Long,
    /// The answer is for another range.
    OtherRange,
    /// A bit of the answer's body is flipped.
    Flip,
    /// A bit of the request's body is flipped before it reaches the store.
    FlipSent,
    /// This bit of the request's body is flipped before it reaches the store.
    FlipSentAt(usize),
    /// The answer has another `ETag`.
    OtherTag,
    /// The answer has the checksum of other bytes.
    OtherChecksum,
    /// The proxy sends no answer.
    Silent,
    /// The request is held back and the connection breaks. The request reaches the store when the
    /// test calls [`Proxy::deliver`].
    HeldUp,
}

/// A rule that assigns a fault to requests.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The method; empty for any.
    pub method: &'static str,
    /// A text that the target contains.
    pub target: &'static str,
    /// The fault.
    pub fault: Fault,
    /// The number of requests that get the fault.
    pub times: u32,
}

#[derive(Default)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    /// The methods and targets of all requests.
    seen: Mutex<Vec<String>>,
    /// The methods, targets and body sizes of all answers.
    sent: Mutex<Vec<(String, usize)>>,
    held: Mutex<Vec<Message>>,
    upstream: u16,
    is_ended: AtomicBool,
}

/// A proxy that runs until it is dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of a store.
    ///
    /// # Errors
    /// Fails if the system can't provide a socket.
    pub fn before(upstream: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared { upstream, ..Shared::default() });
        let own = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if own.is_ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&own);
                let serve = move |stream| serve(&shared, stream);
                std::thread::spawn(move || stream.and_then(serve).unwrap_or_default());
            }
        });
        Ok(Self { port, shared, acceptor: Some(acceptor) })
    }

    /// Returns the port of the proxy.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds a rule. The first rule that matches a request applies.
    pub fn add(&self, method: &'static str, target: &'static str, fault: Fault, times: u32) {
        self.shared.rules.lock().push(Rule { method, target, fault, times });
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.shared.rules.lock().clear();
    }

    /// Returns the methods and targets of all requests so far.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.shared.seen.lock().clone()
    }

    /// Counts the matching requests so far.
    #[must_use]
    pub fn count(&self, method: &str, target: &str) -> usize {
        let seen = self.shared.seen.lock();
        let fits = |line: &&String| {
            line.split_once(' ').is_some_and(|(with, of)| with == method && of.contains(target))
        };
        seen.iter().filter(fits).count()
    }

    /// Returns the number of bytes in the bodies of the answers to matching requests so far.
    #[must_use]
    pub fn sent_bytes(&self, method: &str, target: &str) -> usize {
        let sent = self.shared.sent.lock();
        let fits = |line: &str| {
            line.split_once(' ').is_some_and(|(with, of)| with == method && of.contains(target))
        };
        sent.iter().filter(|(line, _)| fits(line)).map(|(_, bytes)| bytes).sum()
    }

    /// Delivers the held-back requests to the store and returns their number.
    ///
    /// # Errors
    /// Fails if a request can't be forwarded.
    pub fn deliver(&self) -> io::Result<usize> {
        let held = std::mem::take(&mut *self.shared.held.lock());
        held.iter().try_for_each(|request| forward(&self.shared, request).map(drop))?;
        Ok(held.len())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::SeqCst);
        // The acceptor checks the flag at the next connection.
        let woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        let acceptor = self.acceptor.take().filter(|_| woken);
        acceptor.map_or(Ok(()), JoinHandle::join).unwrap_or_default();
    }
}

impl Shared {
    fn fault(&self, request: &Message) -> Option<Fault> {
        let (method, target) = request.target();
        self.seen.lock().push(format!("{method} {target}"));
        let mut rules = self.rules.lock();
        let fits = |rule: &&mut Rule| {
            rule.times > 0
                && (rule.method.is_empty() || rule.method == method)
                && target.contains(rule.target)
        };
        let rule = rules.iter_mut().find(fits)?;
        rule.times -= 1;
        Some(rule.fault.clone())
    }
}

fn forward(shared: &Shared, request: &Message) -> io::Result<Message> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.upstream))?;
    stream.write_all(&request.bytes())?;
    let has_body = request.target().0 != "HEAD";
    let answer = Message::read(&mut BufReader::new(stream), has_body)?;
    let answer = answer.ok_or_else(|| io::Error::other("the store does not answer"))?;
    let (method, target) = request.target();
    shared.sent.lock().push((format!("{method} {target}"), answer.body.len()));
    Ok(answer)
}

fn serve(shared: &Shared, stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(mut request) = Message::read(&mut reader, true)? else { return Ok(()) };
    let mut stream = stream;
    match shared.fault(&request) {
        None => stream.write_all(&forward(shared, &request)?.bytes_for(&request)),
        Some(Fault::Delay(time)) => {
            std::thread::sleep(time);
            stream.write_all(&forward(shared, &request)?.bytes_for(&request))
        }
        Some(Fault::Status(status, after)) => {
            let after = after.map(|after| after.to_string());
            let header = after.as_deref().map(|after| ("retry-after", after));
            let headers: Vec<_> = header.into_iter().collect();
            stream.write_all(&Message::answer(status, &headers, "").bytes())
        }
        Some(Fault::Told(status, text)) => {
            stream.write_all(&Message::answer(status, &[], text).bytes())
        }
        Some(Fault::Redirect(status, place)) => {
            stream.write_all(&Message::answer(status, &[("location", &place)], "").bytes())
        }
        Some(Fault::DoneBut(status)) => {
            forward(shared, &request)?;
            stream.write_all(&Message::answer(status, &[], "").bytes())
        }
        Some(Fault::DoneButTold(status, text)) => {
            forward(shared, &request)?;
            stream.write_all(&Message::answer(status, &[], text).bytes())
        }
        Some(Fault::Reset) => Ok(()),
        Some(Fault::DoneAndReset) => forward(shared, &request).map(drop),
        Some(Fault::HeldUp) => {
            shared.held.lock().push(request);
            Ok(())
        }
        Some(Fault::Silent) => {
            while !shared.is_ended.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        }
        Some(Fault::FlipSent) => {
            flip(&mut request.body);
            stream.write_all(&forward(shared, &request)?.bytes_for(&request))
        }
        Some(Fault::FlipSentAt(bit)) => {
            let byte = request.body.get_mut(bit / 8);
            byte.into_iter().for_each(|byte| *byte ^= 1 << (bit % 8));
            stream.write_all(&forward(shared, &request)?.bytes())
        }
        Some(fault) => stream.write_all(&changed(&fault, forward(shared, &request)?)),
    }
}

fn changed(fault: &Fault, mut answer: Message) -> Vec<u8> {
    let length = answer.body.len();
    match fault {
        Fault::Short => {
            answer.body.pop();
            return answer.bytes_of_length(length);
        }
        Fault::Long => answer.body.push(0),
        Fault::Flip => flip(&mut answer.body),
        Fault::OtherTag => set(&mut answer, "etag", |_| "\"0123456789abcdef\"".to_owned()),
        Fault::OtherChecksum => {
            answer.headers.retain(|(name, _)| name != CHECKSUM.as_str());
            answer.headers.push((CHECKSUM.as_str().to_owned(), base64(&[0; 32])));
        }
        Fault::OtherRange => {
            set(&mut answer, "content-range", |range| range.replacen("bytes ", "bytes 1", 1))
        }
        _ => {}
    }
    answer.bytes()
}

fn set(answer: &mut Message, name: &str, value: impl Fn(&str) -> String) {
    for (_, known) in answer.headers.iter_mut().filter(|(known, _)| known == name) {
        *known = value(known);
    }
}

fn flip(body: &mut [u8]) {
    let middle = body.len() / 2;
    body.get_mut(middle).into_iter().for_each(|byte| *byte ^= 4);
}
