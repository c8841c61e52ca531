//! The schedule of a task: five fields of cron, in a time zone.
//!
//! Owns when a task fires: the crate cronexpr finds the days, but for those of December. Reads no clock and no file: the zones are
//! those that jiff bundles, so all replicas of a version agree. Times are microseconds of the wall clock.

use std::{
    fmt::{self, Debug, Formatter},
    ops::{Range, RangeInclusive},
};

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions, parse_crontab_with};
use jiff::{
    SignedDuration, Timestamp,
    civil::Date,
    tz::{TimeZone, TimeZoneDatabase},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::scalars::{Text, serialized_as_text};

/// No two fires are closer together.
const MINUTE: i64 = 60_000_000;
/// The times after which fires are looked for: until the year 9899, as a search ends within a century.
const RANGE: Range<i64> = 0..250_240_000_000_000_000;
/// Where the search begins that shows whether there are fires at all.
const START: Timestamp = Timestamp::constant(1_798_761_600, 0);
const FOUR_YEARS: SignedDuration = SignedDuration::from_hours(4 * 366 * 24);
/// A search of cronexpr ends after four years, which have at least this many days.
const SEARCH: SignedDuration = SignedDuration::from_hours(4 * 365 * 24);
/// So many searches find a 29 February on a given day of the week: two of them are up to 40 years apart.
const SEARCHES: i32 = 11;
const DECEMBER: SignedDuration = SignedDuration::from_hours(31 * 24);
/// So many fires show the shortest time between two of them: all of a day, and those of a year in which an hour that comes twice
/// brings two closer together.
const ENOUGH: usize = 20_000;

/// The five fields of cron, as a CronJob of Kubernetes has them.
#[derive(Clone)]
pub struct Cron {
    text: String,
    crontab: Crontab,
    /// What fires in December, written for August: cronexpr does not know the last days of a month before January.
    december: Option<Box<Crontab>>,
}

/// A time zone by its name in the tz database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

/// The fires of a task: each minute at which the clocks of the zone show what the fields say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The fields, by the clocks of the zone.
    pub cron: Cron,
    /// The zone whose clocks count.
    pub zone: Zone,
}

impl Zone {
    /// Returns a time, in microseconds, by the clocks of the zone.
    pub fn shown(&self, micros: i64) -> Option<String> {
        let at = Timestamp::from_microsecond(micros).ok()?.to_zoned(self.0.clone());
        Some(at.strftime("%Y-%m-%d %H:%M:%S %Z").to_string())
    }
}

impl Schedule {
    /// Returns the first fire after this time. None if there is none in 44 years.
    pub fn next(&self, after: i64) -> Option<i64> {
        if !RANGE.contains(&after) {
            return None;
        }
        let mut after = Timestamp::from_microsecond(after).ok()?;
        let end = after + SEARCH * SEARCHES;
        let (mut since, mut offset) = (after, self.zone.0.to_offset(after));
        loop {
            let shift = SignedDuration::from_secs(offset.seconds().into());
            let fire = self.cron.next(after + shift)? - shift;
            // From one change of the clocks to the next no time is missing and none comes twice.
            let Some(change) = self.zone.0.following(since).next().filter(|change| change.timestamp() <= fire) else {
                return Some(fire.as_microsecond());
            };
            (since, offset) = (change.timestamp(), change.offset());
            if since > end {
                // The clocks skip each of them.
                return None;
            }
            after = since - SignedDuration::from_secs(1);
        }
    }

    /// Returns true if the clocks do not skip each of its fires.
    pub fn fires(&self) -> bool {
        self.next(START.as_microsecond()).is_some()
    }

    /// Returns the shortest time between two fires, in microseconds.
    pub(crate) fn shortest(&self) -> i64 {
        let [start, end] = [START, START + FOUR_YEARS].map(Timestamp::as_microsecond);
        let fires = std::iter::successors(self.next(start), |fire| self.next(*fire).filter(|fire| *fire < end));
        let fires: Vec<_> = fires.take(ENOUGH).collect();
        fires.array_windows().map(|[fire, next]| next - fire).min().unwrap_or(i64::MAX)
    }

    /// Returns the last fire after `after` and not after `until`.
    pub fn latest(&self, after: i64, until: i64) -> Option<i64> {
        let within = |after| self.next(after).filter(|fire| *fire <= until);
        let (mut latest, mut last) = (within(after)?, until);
        while last - latest >= MINUTE {
            let middle = latest + (last - latest) / 2;
            match within(middle) {
                Some(fire) => latest = fire,
                None => last = middle,
            }
        }
        Some(latest)
    }
}

impl Cron {
    /// Returns the next time like that, of clocks that are never changed.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        (0..SEARCHES).find_map(|searches| self.search(after + SEARCH * searches))
    }

    fn search(&self, after: Timestamp) -> Option<Timestamp> {
        let next = |crontab: &Crontab, after| Some(crontab.find_next(MakeTimestamp(after)).ok()?.timestamp());
        let december = self.december.as_ref().and_then(|december| {
            let year = after.to_zoned(TimeZone::UTC).year();
            (year..=year + 4).find_map(|year| {
                let (begin, august) = (first(year, 12)?, like_december(year)?);
                let shift = begin.duration_since(august);
                let fire = next(december, (after - shift).max(august - SignedDuration::from_secs(1)))? + shift;
                (fire < begin + DECEMBER).then_some(fire)
            })
        });
        [next(&self.crontab, after), december].into_iter().flatten().min()
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl Debug for Cron {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cron {}

serialized_as_text!(Cron, Zone);

impl Text for Cron {
    /// Reads the fields. Each must fire within four years.
    fn read(written: &str) -> Result<Self, String> {
        let refused = |why: &str| Err(format!("{written:?} is not a schedule: {why}"));
        let five = "write five fields, such as \"0 2 * * *\": minute, hour, day of month, month, day of week";
        let fields: Vec<_> = written.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return refused(&match fields.len() {
                1 if written.contains('@') => format!("{five}; it knows no names such as @daily"),
                count => format!("{five}; it has {count}, and seconds or a time zone are none of them"),
            });
        };
        // To cron, a field of days that begins with * narrows the other one, else both count. To Kubernetes, only one with a bare *.
        let days = |field: &str, range: RangeInclusive<u8>, all: &str| {
            let field = &plain(field, range);
            let is_star = |item: &str| item == "*" || item.strip_prefix("*/").is_some_and(|step| step.parse() == Ok(1));
            let is_any = field.split(',').any(is_star);
            if is_any { "*".to_owned() } else { field.replace("*/", all) }
        };
        let fields_of = |month: &str| {
            let (minute, hour) = (plain(minute, 0..=59), plain(hour, 0..=23));
            [minute, hour, days(day, 1..=31, "1-31/"), month.to_owned(), days(weekday, 0..=6, "0-6/")].join(" ")
        };
        let month = plain(month, 1..=12);
        match read(&fields_of(&month)) {
            // The reason comes after a picture of several lines.
            Err(error) => refused(error.to_string().rsplit("^ ").next().unwrap_or_default()),
            Ok(crontab) => {
                let is_december = read(&format!("* * * {month} *")).is_ok_and(|months| {
                    first(2026, 12).is_some_and(|time| months.matches(MakeTimestamp(time)).unwrap_or_default())
                });
                let december = if is_december { read(&fields_of("8")).ok().map(Box::new) } else { None };
                let cron = Self { text: fields.join(" "), crontab, december };
                if cron.search(START).is_some() { Ok(cron) } else { refused("no day of four years is like that") }
            }
        }
    }

    fn written(&self) -> String {
        self.text.clone()
    }
}

/// Reads five fields in the form of cronexpr.
fn read(fields: &str) -> Result<Crontab, cronexpr::Error> {
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    parse_crontab_with(fields, options)
}

/// Writes a field in the form of cronexpr. To Kubernetes ? is *, and a step beyond the field leaves the first value.
fn plain(field: &str, range: RangeInclusive<u8>) -> String {
    let (least, most) = range.into_inner();
    let is_beyond = |step: &str| step.parse::<u32>().is_ok_and(|step| step > u32::from(most - least));
    let item = |item: &str| match item.split_once('/') {
        Some(("*", step)) if is_beyond(step) => least.to_string(),
        Some((values, step)) if is_beyond(step) => values.split('-').next().unwrap_or_default().to_owned(),
        // To cronexpr a week ends with 7, another Sunday, which only an item that names it means.
        Some((value, step)) if !value.contains(['*', '-', '7']) => format!("{value}-{most}/{step}"),
        Some(_) | None => item.to_owned(),
    };
    field.replace('?', "*").split(',').map(item).collect::<Vec<_>>().join(",")
}

/// Returns the begin of a month.
fn first(year: i16, month: i8) -> Option<Timestamp> {
    Some(Date::new(year, month, 1).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Returns the begin of an August with the weekdays of this year's December. It has as many days.
fn like_december(year: i16) -> Option<Timestamp> {
    let weekday = Date::new(year, 12, 1).ok()?.weekday();
    let august = (2027..2039).find(|year| Date::new(*year, 8, 1).is_ok_and(|date| date.weekday() == weekday))?;
    first(august, 8)
}

impl Text for Zone {
    fn read(written: &str) -> Result<Self, String> {
        let unknown = || format!("{written:?} is not a time zone: write a name of the tz database, such as Europe/Berlin");
        // Etc/Unknown has no name of its own.
        let zone = TimeZoneDatabase::bundled().get(written).ok().filter(|zone| zone.iana_name().is_some());
        zone.map(Self).ok_or_else(unknown)
    }

    fn written(&self) -> String {
        self.0.iana_name().unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn schedule(cron: &str, zone: &str) -> Schedule {
        Schedule { cron: Cron::read(cron).unwrap(), zone: Zone::read(zone).unwrap() }
    }

    fn micros(time: &str) -> i64 {
        time.parse::<Timestamp>().unwrap().as_microsecond()
    }

    /// The fires from the first time until before the second one, in seconds.
    fn fires(schedule: &Schedule, start: &str, end: &str) -> Vec<i64> {
        let (start, end) = (micros(start), micros(end));
        let next = |after: &i64| schedule.next(*after).filter(|fire| *fire < end);
        std::iter::successors(next(&(start - 1)), next).map(|fire| fire / SECOND).collect()
    }

    /// The fires of the day whose clocks are changed, and of the next one, as the clocks of the zone show them.
    fn shown(cron: &str, zone: &str, date: &str) -> String {
        let (schedule, day) = (schedule(cron, zone), format!("{date}T00:00:00Z"));
        let day: Timestamp = day.parse().unwrap();
        let (start, end) = (day - SignedDuration::from_hours(12), day + SignedDuration::from_hours(48));
        let all = fires(&schedule, &start.to_string(), &end.to_string());
        let shown = all.into_iter().map(|fire| Timestamp::from_second(fire).unwrap().to_zoned(schedule.zone.0.clone()));
        let of_the_day = shown.filter(|time| time.date().to_string() == date).map(|time| time.strftime("%H:%M%:::z").to_string());
        of_the_day.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_step_beyond_its_field_leaves_the_first_value_as_for_a_cronjob() {
        for (cron, same) in [
            ("0 */24 * * *", "0 0 * * *"),
            ("*/60,7 3-9/60 * * *", "0,7 3 * * *"),
            ("0 0 */31 5/12 *", "0 0 1 5 *"),
            ("0 0 * * 0/8", "0 0 * * 0"),
        ] {
            let of = |cron| fires(&schedule(cron, "UTC"), "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z");
            assert_eq!(of(cron), of(same), "{cron}");
        }
        assert!(Cron::read("0 */0 * * *").is_err() && Cron::read("0 24/25 * * *").is_err());
    }

    #[test]
    fn a_time_that_the_clocks_skip_is_no_fire_and_one_that_comes_twice_is_two() {
        for (cron, zone, date, fires) in [
            ("30 2 * * *", "Europe/Berlin", "2027-03-28", ""),
            ("0 3 * * *", "Europe/Berlin", "2027-03-28", "03:00+02"),
            (
                "0 */2 * * *",
                "Europe/Berlin",
                "2027-03-28",
                "00:00+01 04:00+02 06:00+02 08:00+02 10:00+02 12:00+02 14:00+02 16:00+02 18:00+02 20:00+02 22:00+02",
            ),
            ("*/30 1-3 * * *", "Europe/Berlin", "2027-03-28", "01:00+01 01:30+01 03:00+02 03:30+02"),
            ("30 2 * * *", "Europe/Berlin", "2027-10-31", "02:30+02 02:30+01"),
            (
                "*/30 1-3 * * *",
                "Europe/Berlin",
                "2027-10-31",
                "01:00+02 01:30+02 02:00+02 02:30+02 02:00+01 02:30+01 03:00+01 03:30+01",
            ),
            ("0 3 * * *", "Europe/Berlin", "2027-10-31", "03:00+01"),
            ("30 2 * * *", "UTC", "2027-03-28", "02:30+00"),
            ("0 0 * * *", "America/Santiago", "2027-09-05", ""),
            ("30 2 * * 6", "America/Santiago", "2027-09-05", ""),
            (
                "*/15 1-3 * * *",
                "Australia/Lord_Howe",
                "2027-10-03",
                "01:00+10:30 01:15+10:30 01:30+10:30 01:45+10:30 02:30+11 02:45+11 03:00+11 03:15+11 03:30+11 03:45+11",
            ),
            ("45 1 * * *", "Australia/Lord_Howe", "2027-04-04", "01:45+11 01:45+10:30"),
            ("0 3 * * *", "Australia/Lord_Howe", "2027-04-04", "03:00+10:30"),
        ] {
            assert_eq!(shown(cron, zone, date), fires, "{cron} in {zone}");
        }
    }

    /// The hash of `tests/schedules/table.py`.
    fn entry(fires: impl IntoIterator<Item = i64>) -> String {
        let (mut count, mut hash) = (0, 0xCBF2_9CE4_8422_2325_u64);
        for fire in fires {
            count += 1;
            hash = fire.to_le_bytes().iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3));
        }
        format!("{count}:{hash:016x}")
    }

    /// Adds what croniter has beside them: of the fires that the clocks skip on a day, one, as soon as they are past.
    fn with_skipped(fires: &[i64], schedule: &Schedule, start: &str, end: &str) -> BTreeSet<i64> {
        let mut fires: BTreeSet<_> = fires.iter().copied().collect();
        let mut before = schedule.zone.0.to_offset(start.parse().unwrap());
        for change in
            schedule.zone.0.following(start.parse().unwrap()).take_while(|change| change.timestamp() < end.parse().unwrap())
        {
            let shows = |offset: jiff::tz::Offset| change.timestamp() + SignedDuration::from_secs(offset.seconds().into());
            let skipped = schedule.cron.next(shows(before) - SignedDuration::from_secs(1)).unwrap();
            if skipped < shows(change.offset()) {
                fires.insert(change.timestamp().as_second());
            }
            before = change.offset();
        }
        fires
    }

    /// robfig/cron expects a midnight in each day: a Saturday's fire comes on the Sunday that has none. (Where clocks are changed by
    /// half an hour, it forgets fires, as it takes steps of an hour. croniter is wrong there too.)
    const ODD: [(&str, &str, i64); 1] = [("30 2 * * 6", "America/Santiago", 1_820_122_200)];

    #[test]
    fn a_year_of_sixty_schedules_in_five_zones_is_that_of_cronjobs_and_that_of_croniter_with_what_clocks_skip() {
        let table = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schedules/fires.txt")).unwrap();
        let (head, rows) = table.split_once('\n').unwrap();
        let zones: Vec<_> = head.split_once(" in ").unwrap().1.split(", ").collect();
        let [start, end] = ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"];
        for row in rows.lines() {
            let (cron, expected) = row.split_once(" | ").unwrap();
            for (zone, expected) in zones.iter().zip(expected.split(" | ")) {
                let (croniter, cronjob) = expected.split_once(',').unwrap();
                let schedule = schedule(cron, zone);
                let fires = fires(&schedule, start, end);
                assert_eq!(entry(with_skipped(&fires, &schedule, start, end)), croniter, "{cron} in {zone}, as croniter has it");
                let odd = ODD.iter().filter(|(of, at, _)| (of, at) == (&cron, zone)).map(|(_, _, fire)| *fire);
                let fires: BTreeSet<_> = fires.into_iter().chain(odd).collect();
                assert_eq!(entry(fires), cronjob, "{cron} in {zone}, as a CronJob has it");
            }
        }
        assert_eq!((rows.lines().count(), zones.len()), (60, 5));
    }

    #[test]
    fn a_lease_from_the_end_of_all_times_has_no_next_fire() {
        let never = [i64::MIN, -1, micros("9987-12-31T00:00:00Z"), micros("9999-12-30T00:00:00Z"), i64::MAX];
        assert_eq!(never.map(|after| schedule("* * * * *", "Pacific/Auckland").next(after)), [None; 5]);
    }

    #[test]
    fn the_latest_fire_is_found_however_many_there_are() {
        let latest = |cron, after: &str, until: &str| {
            let fire = schedule(cron, "UTC").latest(micros(after), micros(until))?;
            Some(Timestamp::from_microsecond(fire).unwrap().to_string())
        };
        for (cron, after, until, fire) in [
            ("* * * * *", "2020-01-01T00:00:00Z", "2027-01-01T00:00:59Z", Some("2027-01-01T00:00:00Z")),
            ("* * * * *", "2027-01-01T00:00:00Z", "2027-01-01T00:01:00Z", Some("2027-01-01T00:01:00Z")),
            ("* * * * *", "2027-01-01T00:00:00Z", "2027-01-01T00:00:59Z", None),
            ("* 2 * * *", "2027-01-01T00:00:00Z", "2027-01-01T10:00:00Z", Some("2027-01-01T02:59:00Z")),
            ("0 0 1 1 *", "2020-01-01T00:00:00Z", "2026-12-31T00:00:00Z", Some("2026-01-01T00:00:00Z")),
            ("0 2 * * *", "2027-01-02T02:00:00Z", "2027-01-01T00:00:00Z", None),
        ] {
            assert_eq!(latest(cron, after, until).as_deref(), fire, "{cron} after {after} until {until}");
        }
    }

    /// A day, by an arithmetic of its own.
    #[derive(Clone, Copy)]
    struct Day {
        day: u32,
        month: u32,
        /// Sunday is 0.
        weekday: u32,
        last: u32,
    }

    impl Day {
        /// The days of four years from 2027-01-01, a Friday, on.
        fn all() -> Vec<Self> {
            let mut weekday = 5;
            let mut days = Vec::new();
            for year in 2027..2031 {
                for (month, last) in (1..).zip([31, if year == 2028 { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
                    for day in 1..=last {
                        days.push(Self { day, month, weekday, last });
                        weekday = (weekday + 1) % 7;
                    }
                }
            }
            days
        }

        fn nth(self) -> u32 {
            (self.day - 1) / 7 + 1
        }

        fn is_last_of_its_weekday(self) -> bool {
            self.day + 7 > self.last
        }

        /// The working day that is the nearest to `wanted` within the month.
        fn is_nearest(self, wanted: u32) -> bool {
            let weekday_of = |day: u32| (self.weekday + 35 + day - self.day) % 7;
            let nearest = match (weekday_of(wanted), wanted) {
                (6, 1) => 3,
                (6, _) => wanted - 1,
                (0, _) if wanted == self.last => wanted - 2,
                (0, _) => wanted + 1,
                _ => wanted,
            };
            wanted <= self.last && self.day == nearest
        }
    }

    type Fires = fn(Day) -> bool;

    #[test]
    fn every_extension_fires_on_the_days_that_an_oracle_of_its_own_finds() {
        let table: [(&str, Fires); 16] = [
            ("0 2 L * *", |d| d.day == d.last),
            ("0 2 L 12 *", |d| d.month == 12 && d.day == 31),
            ("0 2 L,1 DEC,JAN *", |d| [1, 12].contains(&d.month) && [1, 31].contains(&d.day)),
            ("0 2 * * 5L", |d| d.weekday == 5 && d.is_last_of_its_weekday()),
            ("0 2 * 12 5L", |d| d.month == 12 && d.weekday == 5 && d.is_last_of_its_weekday()),
            ("0 2 L * 1", |d| d.day == d.last || d.weekday == 1),
            ("0 2 L */3 0L,3#1", |d| {
                let is_week = d.weekday == 0 && d.is_last_of_its_weekday() || d.weekday == 3 && d.nth() == 1;
                d.month % 3 == 1 && (d.day == d.last || is_week)
            }),
            ("0 2 L */11 *", |d| [1, 12].contains(&d.month) && d.day == d.last),
            ("0 2 * * 5#3", |d| d.weekday == 5 && d.nth() == 3),
            ("0 2 * * 1#5", |d| d.weekday == 1 && d.nth() == 5),
            ("0 2 15W * *", |d| d.is_nearest(15)),
            ("0 2 1W,31W * *", |d| d.is_nearest(1) || d.is_nearest(31)),
            ("0 2 ? * 1", |d| d.weekday == 1),
            ("0 2 13 ? ?", |d| d.day == 13),
            ("0 2 ? 12 7L", |d| d.month == 12 && d.weekday == 0 && d.is_last_of_its_weekday()),
            ("0 2 31 12 ?", |d| d.month == 12 && d.day == 31),
        ];
        let (days, start) = (Day::all(), micros("2027-01-01T00:00:00Z") / SECOND);
        for (cron, is_meant) in table {
            let meant = (0..).zip(&days).filter(|(_, day)| is_meant(**day)).map(|(index, _)| start + index * 86_400 + 7_200);
            let found = fires(&schedule(cron, "UTC"), "2027-01-01T00:00:00Z", "2031-01-01T00:00:00Z");
            assert_eq!(found, meant.collect::<Vec<_>>(), "{cron}");
        }
    }

    #[test]
    fn a_fire_that_the_clocks_always_skip_is_none_and_nobody_looks_for_it_for_ever() {
        let skipped = schedule("30 2 * 3 0#2", "America/New_York");
        assert_eq!((skipped.fires(), skipped.next(micros("2027-01-01T00:00:00Z"))), (false, None));
        assert!(schedule("30 2 * 3 0#2", "Europe/Berlin").fires());
        assert!(schedule("30 3 * 3 0#2", "America/New_York").fires());
    }

    #[test]
    fn the_next_fire_is_found_however_many_years_pass_before_it() {
        for (cron, last, next) in [
            ("0 0 * 11 1#5", "2027-11-29T00:00:00Z", "2032-11-29T00:00:00Z"),
            ("0 0 * 4 5#5", "2027-04-30T00:00:00Z", "2032-04-30T00:00:00Z"),
            ("0 0 * 12 1#5", "2031-12-29T00:00:00Z", "2035-12-31T00:00:00Z"),
            ("0 0 29W 2 *", "2032-02-27T00:00:00Z", "2036-02-29T00:00:00Z"),
            ("0 0 29 2 *", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"),
            ("0 0 * 2 2#5", "2084-02-29T00:00:00Z", "2124-02-29T00:00:00Z"),
        ] {
            assert_eq!(schedule(cron, "UTC").next(micros(last)), Some(micros(next)), "{cron}");
        }
        let berlin = schedule("0 1 * 11 1#5", "Europe/Berlin").next(micros("2027-11-29T00:00:00Z"));
        assert_eq!(berlin, Some(micros("2032-11-29T00:00:00Z")));
    }

    #[test]
    fn a_zone_survives_the_link_or_is_none() {
        assert!(Zone::read("Etc/Unknown").unwrap_err().contains("is not a time zone"));
        for name in TimeZoneDatabase::bundled().available() {
            if let Ok(zone) = Zone::read(name.as_str()) {
                assert_eq!(Zone::read(&zone.written()), Ok(zone), "{}", name.as_str());
            }
        }
    }

    #[test]
    fn the_days_of_two_fields_are_counted_as_kubernetes_counts_them() {
        let days = |cron| fires(&schedule(cron, "UTC"), "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z").len();
        let fields = ["0 0 13 * 5", "0 0 * * 5", "0 0 */10 * 5", "0 0 */1 * 5", "0 0 10,* * 5", "0 0 1 * */2", "0 0 1 * */7"];
        assert_eq!(fields.map(days), [6, 5, 8, 5, 5, 19, 6]);
        assert_eq!(["0 0 */01 * 5", "0 0 1 * */001", "0 0 */02 * 5"].map(days), [5, 1, 18]);
        assert_eq!(["0 0 * * 7/2", "0 0 * * 7"].map(days), [5, 5], "a CronJob knows no day 7");
    }
}
