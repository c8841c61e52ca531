//! A remark that is made once, and again only after its cause was gone.

/// Remembers that a remark was made. Never makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Once(bool);

impl Once {
    /// Nothing was said yet.
    pub const NEW: Self = Self(false);

    /// Returns true if the remark is to be made now: at the first call, and at the first one after [`Self::forget`].
    pub const fn say(&mut self) -> bool {
        !std::mem::replace(&mut self.0, true)
    }

    /// Forgets the remark, because its cause is gone. Returns true if it was made.
    pub const fn forget(&mut self) -> bool {
        std::mem::replace(&mut self.0, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_is_made_once_and_again_once_it_was_forgotten() {
        let mut once = Once::NEW;
        assert!(!once.forget());
        assert_eq!([once.say(), once.say()], [true, false]);
        assert_eq!([once.forget(), once.forget(), once.say()], [true, false, true]);
    }
}
