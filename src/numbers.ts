/** 7912 → "7,912". Intl is not deterministic across workers. */
export function count(tokens: number): string {
  return String(tokens).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}
