//! The prices of stores, read from a file, and the cost of traffic.

use std::path::Path;

use anyhow::Result;
use fslab_tier::Id;
use fslab_tier::archive::Traffic;
use fslab_tier::command::{ArchiveState, Plan};
use serde::{Deserialize, Serialize};

use super::unusable;

const GIB: f64 = (1_u64 << 30) as f64;

/// The prices of archives.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The name of the currency, for output.
    currency: String,
    /// The first entry that matches an archive is used.
    price: Vec<Price>,
}

/// The prices of one archive, or of all archives of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Price {
    /// The identity or the URL of an archive, or a kind of archives such as `s3`.
    archive: String,
    put_per_1000: f64,
    get_per_1000: f64,
    list_per_1000: f64,
    delete_per_1000: f64,
    stored_per_gib_month: f64,
    received_per_gib: f64,
}

/// A cost, in the currency of the prices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    currency: String,
    /// The cost of requests.
    requests: f64,
    /// The cost of received bytes.
    received: f64,
    /// The cost of the stored bytes for each month.
    stored_month: f64,
    /// The archives without a price. Their cost is not included.
    unpriced: Vec<Id>,
}

impl Prices {
    /// Reads prices from a file.
    ///
    /// # Errors
    /// The file can't be read, or it has a wrong key or an invalid price.
    pub fn read(file: &Path) -> Result<Self> {
        let shown = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|error| unusable(&format!("can't read the prices {shown}"), error))?;
        let prices: Self = match toml::from_str(&text) {
            Ok(prices) => prices,
            Err(error) => {
                let before = error.span().and_then(|span| text.get(..span.start));
                let line = 1 + before.unwrap_or_default().matches('\n').count();
                // The message may have several lines.
                let message = error.message().replace('\n', "; ");
                bail_as!(BadInput, "{shown}, line {line}: {message}")
            }
        };
        for price in &prices.price {
            if let Some((key, value)) = price.wrong() {
                let archive = &price.archive;
                bail_as!(
                    BadInput,
                    "{shown}: {key} of '{archive}' is {value}, but a price is a number from 0"
                );
            }
        }
        Ok(prices)
    }

    fn of(&self, archive: Id, address: Option<&str>) -> Option<&Price> {
        self.price.iter().find(|price| price.is_of(archive, address))
    }

    /// Returns the cost of a plan.
    pub fn of_plan(&self, plan: &Plan) -> Cost {
        let mut cost = Cost { currency: self.currency.clone(), ..Cost::default() };
        for planned in &plan.archives {
            let address = planned.address.as_deref();
            cost.add((planned.archive, self.of(planned.archive, address)), &planned.traffic, {
                planned.stored_bytes
            });
        }
        cost
    }

    /// Returns the cost that an archive has caused, and the cost of its present contents.
    pub fn of_archive(&self, state: &ArchiveState) -> Cost {
        let mut cost = Cost { currency: self.currency.clone(), ..Cost::default() };
        let price = self.of(state.archive, state.address.as_deref());
        // The store also charges for deleted objects that it retains.
        let retained = state.retained.as_ref().map_or(0, |retained| retained.bytes);
        cost.add((state.archive, price), &state.traffic.traffic, state.bytes + retained);
        cost
    }
}

impl Price {
    /// Returns a key with an invalid value.
    fn wrong(&self) -> Option<(&'static str, f64)> {
        let values = [
            ("put_per_1000", self.put_per_1000),
            ("get_per_1000", self.get_per_1000),
            ("list_per_1000", self.list_per_1000),
            ("delete_per_1000", self.delete_per_1000),
            ("stored_per_gib_month", self.stored_per_gib_month),
            ("received_per_gib", self.received_per_gib),
        ];
        values.into_iter().find(|(_, value)| !value.is_finite() || *value < 0.0)
    }

    fn is_of(&self, archive: Id, address: Option<&str>) -> bool {
        let kind = address.and_then(|address| address.split_once(':')).map(|(kind, _)| kind);
        self.archive == archive.to_string()
            || address == Some(&self.archive)
            || kind == Some(&self.archive)
    }
}

impl Cost {
    fn add(&mut self, (archive, price): (Id, Option<&Price>), traffic: &Traffic, stored: u64) {
        let Some(price) = price else { return self.unpriced.push(archive) };
        let requests = [
            (traffic.put_requests, price.put_per_1000),
            (traffic.get_requests, price.get_per_1000),
            (traffic.list_requests, price.list_per_1000),
            (traffic.delete_requests, price.delete_per_1000),
        ];
        let requests = requests.iter().map(|(count, price)| *count as f64 / 1000.0 * price);
        self.requests += requests.sum::<f64>();
        self.received += traffic.received_bytes as f64 / GIB * price.received_per_gib;
        self.stored_month += stored as f64 / GIB * price.stored_per_gib_month;
    }

    /// Formats the cost as a readable line. `bound` is a word such as "at most".
    pub fn line(&self, bound: &str) -> String {
        let Self { currency, requests, received, stored_month, unpriced } = self;
        let amount = |value: &f64| format!("{currency} {value:.4}");
        let unpriced = match unpriced.len() {
            0 => String::new(),
            1 => "; one archive has no price".to_owned(),
            count => format!("; {count} archives have no price"),
        };
        format!(
            "cost: {bound}{} for requests, {} for received bytes; {} a month for stored bytes\
             {unpriced}",
            amount(requests),
            amount(received),
            amount(stored_month)
        )
    }
}

#[cfg(test)]
mod tests {
    use fslab_tier::archive::Usage;

    use super::*;

    const TEXT: &str = "currency = 'EUR'\n[[price]]\narchive = 's3://a/b'\nput_per_1000 = 5\n\
        get_per_1000 = 0.5\nlist_per_1000 = 4\ndelete_per_1000 = 0\nstored_per_gib_month = 0.02\n\
        received_per_gib = 0.1\n";

    fn read(text: &str) -> Result<Prices, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let name = file.path().display().to_string();
        Prices::read(file.path()).map_err(|error| error.to_string().replace(&name, "FILE"))
    }

    fn state(address: &str) -> ArchiveState {
        let traffic = Traffic {
            put_requests: 1000,
            get_requests: 4000,
            list_requests: 500,
            delete_requests: 9,
            sent_bytes: 1 << 40,
            received_bytes: 3 << 30,
        };
        ArchiveState {
            proof: None,
            retained: None,
            archive: Id([1; 16]),
            address: Some(address.to_owned()),
            attached: true,
            refusal: None,
            away: None,
            usage: Default::default(),
            encrypted: false,
            free_bytes: None,
            objects: 1,
            bytes: 5 << 30,
            traffic: Usage { traffic, ..Usage::default() },
        }
    }

    #[test]
    fn cost_is_the_sum_over_all_classes() {
        let cost = read(TEXT).unwrap().of_archive(&state("s3://a/b"));
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        assert!(near(cost.requests, 5.0 + 2.0 + 2.0), "{cost:?}");
        assert!(near(cost.received, 0.3) && near(cost.stored_month, 0.1), "{cost:?}");
        assert_eq!(cost.unpriced, []);
    }

    #[test]
    fn price_applies_to_an_archive_by_identity_url_or_kind() {
        let unpriced = |name: &str, address: &str| {
            let prices = read(&TEXT.replace("s3://a/b", name)).unwrap();
            prices.of_archive(&state(address)).unpriced.len()
        };
        assert_eq!(unpriced("s3", "s3://a/b"), 0);
        assert_eq!(unpriced("s3://a/b", "s3://a/b"), 0);
        assert_eq!(unpriced(&Id([1; 16]).to_string(), "dir:/x"), 0);
        assert_eq!(unpriced("s3", "dir:/s3"), 1);
        assert_eq!(unpriced("s3://a", "s3://a/b"), 1);
    }

    #[test]
    fn wrong_prices_are_refused_in_one_line() {
        let wrong = TEXT.replace("get_per_1000", "gets_per_1000");
        let error = read(&wrong).unwrap_err();
        assert!(error.starts_with("FILE, line 5: unknown field `gets_per_1000`"), "{error}");
        let error = read(&TEXT.replace("get_per_1000 = 0.5\n", "")).unwrap_err();
        assert!(error.contains("missing field `get_per_1000`"), "{error}");
        for value in ["-1.0", "nan", "inf"] {
            let error = read(&TEXT.replace("0.5", value)).unwrap_err();
            assert!(error.starts_with("FILE: get_per_1000 of 's3://a/b' is "), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn example_of_the_guide_is_valid() {
        // Tests run in the folder of their package.
        let page = std::fs::read_to_string("../../docs/guide/src/reference/prices.md").unwrap();
        let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let prices = read(example).unwrap();
        let cost = prices.of_archive(&state("s3://my-bucket/photos"));
        assert!(cost.unpriced.is_empty() && cost.requests > 0.0, "{cost:?}");
        assert!(prices.of_archive(&state("dir:/mnt/nas")).unpriced.is_empty());
    }
}
