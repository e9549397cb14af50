/** An unsigned decimal number without its spelling: `12.50`, `1.25e1` and `12.5` are all 125 · 10⁻¹. Zero has no digits. */
function decimalOf(literal: string): { digits: string; exponent: number } {
  const [mantissa = '', exponent = '0'] = literal.toLowerCase().split('e');
  const [whole = '', fraction = ''] = mantissa.split('.');
  const significant = (whole + fraction).replace(/^0+/, '');
  const digits = withoutTrailingZeros(significant);
  if (digits === '') return { digits, exponent: 0 };
  return { digits, exponent: Number(exponent) - fraction.length + (significant.length - digits.length) };
}

/** Not by `/0+$/`, which takes quadratic time on zeros that another digit follows. */
function withoutTrailingZeros(digits: string): string {
  let end = digits.length;
  while (digits[end - 1] === '0') end--;
  return digits.slice(0, end);
}

const unsigned = (literal: string): string => (literal.startsWith('-') ? literal.slice(1) : literal);

/**
 * Whether a JSON number comes back as the same decimal number after JavaScript has held it: `1.0` and `1e2` do
 * (as `1` and `100`), `9007199254740993`, `0.1000000000000000055`, `1e400`, `1e-400` and `-0` do not.
 */
export function isExact(literal: string): boolean {
  if (/^-?[1-9][0-9]{0,14}$/.test(literal) || literal === '0') return true;
  const value = Number(literal);
  if (!Number.isFinite(value) || Object.is(value, -0)) return false;
  const given = decimalOf(unsigned(literal));
  const kept = decimalOf(unsigned(String(value)));
  return given.digits === kept.digits && given.exponent === kept.exponent;
}
