//! A file's extents as text that any table engine can split: `LOGICAL:PHYSICAL:LENGTH:FLAGS`,
//! separated by spaces. All numbers are decimal, and the first three are in bytes. The flags are
//! those of FIEMAP.

use fslab_vfs::Extent;

use crate::table::Text;

/// The extents of a file in logical order, with their FIEMAP flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentList {
    /// The extents.
    pub extents: Vec<Extent>,
    /// The FIEMAP flags of each extent.
    pub flags: Vec<u32>,
}

impl ExtentList {
    /// Parses a text; `None` if it is not such a list or is not in logical order.
    #[must_use]
    pub fn parse(text: &Text) -> Option<Self> {
        let mut list = Self::default();
        let mut end = 0;
        for one in std::str::from_utf8(text.bytes()).ok()?.split(' ').filter(|one| !one.is_empty())
        {
            let mut numbers = one.split(':').map(|number| number.parse::<u64>().ok());
            let mut next = || numbers.next().flatten();
            let (logical, physical, length) = (next()?, next()?, next()?);
            let flags = u32::try_from(next()?).ok()?;
            if numbers.next().is_some() || logical < end || length == 0 {
                return None;
            }
            end = logical.checked_add(length)?;
            physical.checked_add(length)?;
            list.extents.push(Extent { logical, physical, length });
            list.flags.push(flags);
        }
        Some(list)
    }

    /// Formats the list as text.
    #[must_use]
    pub fn to_text(&self) -> Text {
        let one = |(extent, flags): (&Extent, &u32)| {
            let Extent { logical, physical, length } = extent;
            format!("{logical}:{physical}:{length}:{flags}")
        };
        let all: Vec<_> = self.extents.iter().zip(&self.flags).map(one).collect();
        all.join(" ").into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_list_round_trips_and_invalid_text_is_refused() {
        let extent = |logical, physical, length| Extent { logical, physical, length };
        let extents = vec![extent(0, 8192, 4096), extent(8192, 4096, 12_288)];
        let list = ExtentList { extents, flags: vec![0, 0x801] };
        let text = list.to_text();
        assert_eq!(text.bytes(), b"0:8192:4096:0 8192:4096:12288:2049");
        assert_eq!(ExtentList::parse(&text).unwrap(), list);
        assert_eq!(ExtentList::parse(&Text::default()).unwrap(), ExtentList::default());
        for wrong in [
            "x",
            "0:1",
            "0:1:2:3:4",
            "0:1:0:0",
            "0:1:2:4294967296",
            "4:1:4:0 0:9:4:0",
            "0:9:8:0 4:9:8:0",
            "0:18446744073709551615:2:0",
            "18446744073709551615:0:2:0",
            "\u{fe}",
        ] {
            let text = wrong.as_bytes().to_vec().into();
            assert_eq!(ExtentList::parse(&text), None, "{wrong}");
        }
    }
}
