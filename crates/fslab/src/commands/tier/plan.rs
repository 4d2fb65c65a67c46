//! Formats plans and the traffic of archives.

use fslab_tier::archive::{Traffic, Usage};
use fslab_tier::command::{ArchiveState, Bound, Plan};

use super::prices::Prices;
use crate::units;

/// Formats a plan as readable lines.
pub fn plan_lines(plan: &Plan, prices: Option<&Prices>) -> Vec<String> {
    let mut lines = vec![header("time")];
    for planned in &plan.archives {
        let name = name(planned.address.as_deref(), planned.archive);
        lines.push(row(&name, &planned.traffic, &time(planned.estimated_seconds)));
    }
    let bound = match plan.bound {
        Bound::AtMost => "at most ",
        Bound::AtLeast => "at least ",
    };
    let sent: u64 = plan.archives.iter().map(|planned| planned.traffic.sent_bytes).sum();
    let received: u64 = plan.archives.iter().map(|planned| planned.traffic.received_bytes).sum();
    let requests: u64 = plan.archives.iter().map(|planned| planned.traffic.requests()).sum();
    lines.push(format!(
        "{bound}{}, {} sent, {} received; estimated time {}",
        units::counted(requests, "request"),
        units::bytes(sent),
        units::bytes(received),
        time(plan.estimated_seconds)
    ));
    if plan.changed_files > 0 {
        lines.push(format!(
            "of {}, only the changed blocks are sent; the plan does not know how many there are",
            units::counted(plan.changed_files, "file")
        ));
    }
    lines.extend(disk_line(plan));
    lines.extend(prices.map(|prices| prices.of_plan(plan).line(bound)));
    lines
}

fn disk_line(plan: &Plan) -> Option<String> {
    let free = plan.free_bytes.map_or_else(|| "unknown".to_owned(), units::bytes);
    match (plan.needed_bytes, plan.freed_bytes) {
        (0, 0) => None,
        (0, freed) => Some(format!("disk space: frees {}, free now {free}", units::bytes(freed))),
        (needed, _) => Some(format!("disk space: needs {}, free now {free}", units::bytes(needed))),
    }
}

/// Formats the traffic of archives as readable lines; no lines if nothing was counted.
pub fn traffic_lines(states: &[ArchiveState], prices: Option<&Prices>) -> Vec<String> {
    if states.iter().all(|state| state.traffic == Usage::default()) {
        return Vec::new();
    }
    let mut lines = vec![String::new(), header("retries")];
    for state in states {
        let name = name(state.address.as_deref(), state.archive);
        lines.push(row(&name, &state.traffic.traffic, &state.traffic.retries.to_string()));
        lines.extend(prices.map(|prices| prices.of_archive(state).line("")));
    }
    lines
}

fn name(address: Option<&str>, archive: fslab_tier::Id) -> String {
    address.map_or_else(|| archive.to_string(), ToOwned::to_owned)
}

fn header(last: &str) -> String {
    line(["put", "get", "list", "delete", "sent", "received", last], "archive")
}

fn row(name: &str, traffic: &Traffic, last: &str) -> String {
    let Traffic { put_requests, get_requests, list_requests, delete_requests, .. } = traffic;
    let requests = [put_requests, get_requests, list_requests, delete_requests];
    let [put, get, list, delete] = requests.map(ToString::to_string);
    let [sent, received] = [traffic.sent_bytes, traffic.received_bytes].map(units::bytes);
    line([&put, &get, &list, &delete, &sent, &received, last], name)
}

fn line([put, get, list, delete, sent, received, last]: [&str; 7], name: &str) -> String {
    format!("{put:>8} {get:>8} {list:>8} {delete:>8} {sent:>10} {received:>10} {last:>8}  {name}")
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "unknown".to_owned(), |seconds| units::duration((seconds * 1e9) as u64))
}
