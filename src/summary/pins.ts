/** Pins: texts that every head carries word for word. Only the operator's policy makes them, never a message. */

/** The pins as they stand in the head, each between its own tags, untouched. Empty without pins. */
export function pinsBlock(pins: readonly string[]): string {
  if (pins.length === 0) return '';
  return ['<pins>', ...pins.map((pin) => `<pin>${pin}</pin>`), '</pins>'].join('\n');
}

/** Indexes of the pins that a text does not hold word for word. */
export function missingPins(pins: readonly string[], text: string): number[] {
  return pins.flatMap((pin, index) => (text.includes(pin) ? [] : [index]));
}
