//! Logarithms and exponentials with identical results on every machine.
//!
//! Those of the platform's math library can differ in the last bit between platforms, and decisions must not. Addition,
//! multiplication and division do not differ.

/// Size of the table; more than the number of tokens in the text window.
const SIZE: usize = 1 << 13;

const LN_2: f64 = std::f64::consts::LN_2;

/// ln(x) for x ≥ 1: x is halved until it is below 1.5, then the series of the inverse hyperbolic tangent is used.
const fn ln(mut x: f64) -> f64 {
    let mut twos = 0.0;
    while x >= 1.5 {
        x /= 2.0;
        twos += 1.0;
    }
    let ratio = (x - 1.0) / (x + 1.0);
    let (mut power, mut sum, mut n) = (ratio, 0.0, 1.0);
    while n < 20.0 {
        sum += power / n;
        power *= ratio * ratio;
        n += 2.0;
    }
    twos * LN_2 + 2.0 * sum
}

static LN_1P: [f32; SIZE] = {
    let (mut table, mut n) = ([0.0; SIZE], 0);
    while n < SIZE {
        table[n] = ln(1.0 + n as f64) as f32;
        n += 1;
    }
    table
};

/// ln(1 + n); for n beyond the table, its last value.
pub(super) fn ln_1p(n: usize) -> f32 {
    LN_1P[n.min(SIZE - 1)]
}

static IN_256THS: [i16; 256] = {
    let (mut table, mut n) = ([0; 256], 0);
    while n < table.len() {
        table[n] = (LN_1P[n] * 256.0) as i16;
        n += 1;
    }
    table
};

/// ln(1 + n) in 256ths, rounded down.
pub(super) fn ln_1p_256(n: u8) -> i16 {
    IN_256THS[usize::from(n)]
}

/// e^x, to about seven digits.
pub(super) fn exp(x: f64) -> f64 {
    // (e^(x/1024))^1024: a short series for the small exponent, then ten squarings.
    let small = x.clamp(-40.0, 40.0) / 1024.0;
    let mut value = 1.0 + small * (1.0 + small / 2.0 * (1.0 + small / 3.0 * (1.0 + small / 4.0)));
    for _ in 0..10 {
        value *= value;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_accurate() {
        for n in [0_u16, 1, 2, 3, 7, 100, 8_191] {
            assert!((ln_1p(n.into()) - f32::from(n).ln_1p()).abs() < 1e-6, "{n}");
        }
        assert_eq!(ln_1p(usize::MAX).to_bits(), ln_1p(SIZE - 1).to_bits());
        for x in [-30.0, -1.0, 0.0, 0.5, 3.0, 20.0] {
            assert!((exp(x) / f64::exp(x) - 1.0).abs() < 1e-6, "{x}");
        }
    }
}
