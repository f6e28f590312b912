//! Axes: where a value lies, and which values have a tick.

/// Most ticks of an axis, besides those of a half.
const TICKS_MAX: f64 = 6.0;

/// Values of an axis lie between these: what is beyond is no time and no ratio, and would make ticks without end.
const LEAST: f64 = 1e-9;
const MOST: f64 = 1e18;

/// Maps values to coordinates, evenly or by their logarithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    logarithmic: bool,
}

impl Scale {
    /// An even scale from 0 to at least `most`, on the coordinates `start` to `end`.
    pub(super) fn linear(most: f64, start: f64, end: f64) -> Self {
        let most = if most.is_finite() && most > 0.0 { most.clamp(LEAST, MOST) } else { 1.0 };
        let step = step(most);
        Self { from: 0.0, to: (most / step).ceil() * step, start, end, logarithmic: false }
    }

    /// A logarithmic scale that contains `least` and `most`; its ends are 1, 2 or 5 times a power of ten.
    pub(super) fn logarithmic(least: f64, most: f64, start: f64, end: f64) -> Self {
        let usable = |value: f64| (value.is_finite() && value > 0.0).then(|| value.clamp(LEAST, MOST));
        let least = usable(least).unwrap_or(1.0);
        let most = usable(most).unwrap_or(least).max(least);
        let (from, mut to) = (round_down(least), round_up(most));
        if to <= from {
            to = from * 10.0;
        }
        Self { from, to, start, end, logarithmic: true }
    }

    /// A logarithmic scale with exactly these ends.
    pub(super) fn between(from: f64, to: f64, start: f64, end: f64) -> Self {
        Self { from, to: to.clamp(from * 2.0, MOST), start, end, logarithmic: true }
    }

    /// The coordinate of a value; one beyond the axis lies at its end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let place = |value: f64| if self.logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let share = (place(value) - place(self.from)) / (place(self.to) - place(self.from));
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self.start + share * (self.end - self.start)
    }

    /// Both ends.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Values with a tick, ascending.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            let step = step(self.to);
            return (0..=(self.to / step).round() as u32).map(|number| f64::from(number) * step).collect();
        }
        let decades = (self.to / self.from).log10();
        let factors: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let first = self.from.log10().floor() as i32;
        let last = self.to.log10().ceil() as i32;
        let near = 1.0 + 1e-9;
        (first..=last)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
            .filter(|tick| *tick * near >= self.from && *tick <= self.to * near)
            .collect()
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides `most` into few parts.
fn step(most: f64) -> f64 {
    round_up(most / TICKS_MAX)
}

fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let digit = value / power;
    let rounded = [1.0, 2.0, 5.0].into_iter().find(|candidate| digit <= candidate * (1.0 + 1e-9)).unwrap_or(10.0);
    rounded * power
}

fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let digit = value / power;
    let rounded = [5.0, 2.0, 1.0].into_iter().find(|candidate| digit * (1.0 + 1e-9) >= *candidate).unwrap_or(1.0);
    rounded * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_scale_begins_at_zero_and_ends_at_a_round_value() {
        let scale = Scale::linear(347.0, 0.0, 100.0);
        assert_eq!(scale.ends(), (0.0, 400.0));
        assert_eq!(scale.ticks(), [0.0, 100.0, 200.0, 300.0, 400.0]);
        assert_eq!((scale.at(0.0), scale.at(100.0), scale.at(1e9)), (0.0, 25.0, 100.0));
    }

    #[test]
    fn a_logarithmic_scale_has_decades_as_ticks() {
        let scale = Scale::logarithmic(45.0, 8_400_000.0, 200.0, 0.0);
        assert_eq!(scale.ends(), (20.0, 10_000_000.0));
        assert_eq!(scale.ticks(), [1e2, 1e3, 1e4, 1e5, 1e6, 1e7]);
        assert!(scale.at(100.0) > scale.at(1_000.0), "the axis goes upwards");
        let short = Scale::logarithmic(0.75, 4.73, 0.0, 100.0);
        assert_eq!((short.ends(), short.ticks()), ((0.5, 5.0), vec![0.5, 1.0, 2.0, 5.0]));
    }

    #[test]
    fn nonsense_still_gives_a_finite_scale() {
        for (least, most) in
            [(0.0, 0.0), (f64::NAN, f64::INFINITY), (-1.0, -2.0), (5.0, 5.0), (1e-300, 1e300), (0.0, f64::MAX)]
        {
            for scale in [Scale::logarithmic(least, most, 0.0, 100.0), Scale::linear(most, 0.0, 100.0)] {
                for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1.0] {
                    let place = scale.at(value);
                    assert!((0.0..=100.0).contains(&place), "{least} to {most}: {value} at {place}");
                }
                assert!(!scale.ticks().is_empty() && scale.ticks().len() <= 32, "{least} to {most}");
            }
        }
    }
}
