//! Decides who descends from whom, in a list of processes.

use nix::unistd::Pid;

use super::Process;

/// The answer to the question whether a process descends from one of those sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kin {
    /// Not decided.
    Unknown,
    /// Yes.
    Yes,
    /// No.
    No,
    /// Unknown, because the chain of parents leaves the list.
    Lost,
}

/// Decides every unknown entry of `table` (sorted by pid) by its chain of parents: it gets the verdict of the next decided one.
/// With a `root`, its descendants are kin, but not itself; without one, chains that leave the table are not kin.
pub(super) fn trace(table: &[Process], kin: &mut [Kin], root: Option<Pid>) {
    let root_start = root.and_then(|root| table.get(index(table, root)?)).map_or(0, |root| root.start);
    // Most parents have lower pids than their children, so that few rounds are needed.
    let mut undecided = usize::MAX;
    while let left = kin.iter().filter(|kin| **kin == Kin::Unknown).count()
        && left < undecided
    {
        undecided = left;
        for (at, process) in table.iter().enumerate() {
            // The top, or older than the root and so not its child.
            let is_above = process.parent.as_raw() == 0 || Some(process.pid) == root || process.start < root_start;
            let verdict = match index(table, process.parent) {
                _ if is_above => Kin::No,
                _ if Some(process.parent) == root => Kin::Yes,
                Some(parent) => kin.get(parent).copied().unwrap_or(Kin::Lost),
                None => Kin::Lost,
            };
            if let Some(kin @ Kin::Unknown) = kin.get_mut(at) {
                *kin = verdict;
            }
        }
    }
    // Only a loop made of recycled pids is left.
    kin.iter_mut().filter(|kin| **kin == Kin::Unknown).for_each(|kin| *kin = Kin::Lost);
}

fn index(table: &[Process], pid: Pid) -> Option<usize> {
    table.binary_search_by_key(&pid, |process| process.pid).ok()
}

#[cfg(test)]
mod tests {
    use super::{super::UNREADABLE, *};

    /// Processes as (pid, parent, start).
    fn kin(processes: &[(i32, i32, u64)], root: Option<i32>) -> Vec<Kin> {
        let process =
            |&(own, parent, start)| Process { pid: Pid::from_raw(own), parent: Pid::from_raw(parent), start, ..UNREADABLE };
        let table: Vec<_> = processes.iter().map(process).collect();
        let mut kin = vec![Kin::Unknown; table.len()];
        trace(&table, &mut kin, root.map(Pid::from_raw));
        kin
    }

    #[test]
    fn descendants_are_found_by_the_chain_of_parents_in_any_order_of_pids() {
        let processes = [(1, 0, 1), (5, 9, 7), (6, 1, 2), (7, 6, 5), (8, 12, 8), (9, 7, 6), (12, 9, 8), (20, 6, 9), (21, 0, 9)];
        let (yes, no) = (Kin::Yes, Kin::No);
        assert_eq!(kin(&processes, Some(7)), [no, yes, no, no, yes, yes, yes, no, no]);
    }

    #[test]
    fn a_chain_that_leaves_the_table_is_lost_unless_older_than_init() {
        let processes = [(1, 0, 1), (7, 1, 5), (8, 99, 6), (9, 8, 6), (10, 99, 4)];
        assert_eq!(kin(&processes, Some(7)), [Kin::No, Kin::No, Kin::Lost, Kin::Lost, Kin::No]);
    }

    #[test]
    fn a_loop_of_recycled_pids_ends() {
        assert_eq!(kin(&[(7, 1, 5), (8, 9, 6), (9, 8, 6)], Some(7)), [Kin::No, Kin::Lost, Kin::Lost]);
    }
}
