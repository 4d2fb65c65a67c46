//! The order in which FFS searches groups: the preferred group, then groups at doubling distances,
//! then all others.

use super::space::Space;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::types::GroupNo;

/// Calls `search` for one group after another, in the order of FFS, and returns its first result.
/// The last argument of `search` is `true` only for the preferred group.
pub(crate) fn hash_search<T>(
    space: &mut dyn Space,
    preferred: GroupNo,
    mut search: impl FnMut(&mut dyn Space, GroupNo, bool) -> Result<Option<T>>,
) -> Result<Option<T>> {
    if let Some(found) = search(space, preferred, true)? {
        return Ok(Some(found));
    }
    let geometry = *space.geometry();
    for group in others(&geometry, preferred) {
        if let Some(found) = search(space, group, false)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns the groups to search after the preferred one: at distances 1, 3, 7 and so on, then at
/// all distances from 2 on. The group at distance 1 is not repeated.
fn others(geometry: &Geometry, preferred: GroupNo) -> impl Iterator<Item = GroupNo> + use<> {
    let groups = geometry.groups;
    let rest = (2..groups).map(move |step| (preferred.0 + step) % groups);
    at_doubling_distances(groups, preferred.0).chain(rest.map(GroupNo))
}

/// Returns the groups at distances 1, 3, 7, ... from a group.
pub(crate) fn at_doubling_distances(
    groups: u32,
    from: u32,
) -> impl Iterator<Item = GroupNo> + use<> {
    std::iter::successors(Some(1_u32), |step| step.checked_mul(2))
        .take_while(move |step| *step < groups)
        .scan(from, move |group, step| {
            *group = (*group + step) % groups;
            Some(GroupNo(*group))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_search_doubles_distances_then_tries_every_group() {
        let geometry = super::super::tests::geometry(8, 1000);
        let order: Vec<u32> = others(&geometry, GroupNo(5)).map(|group| group.0).collect();
        assert_eq!(order, [6, 0, 4, 7, 0, 1, 2, 3, 4]);
    }
}
