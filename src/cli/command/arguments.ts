/** Arguments of commands; commander has seen to it that those which must be there are there. */
import { wholeNumber, type Range } from '../terminal/numbers.js';

export const argument = (args: readonly string[], index: number, name: string): string =>
  args[index] ?? absent(name);

export const numberArgument = (args: readonly string[], index: number, name: string, range?: Range): number =>
  wholeNumber(argument(args, index, name), name, range);

function absent(name: string): never {
  throw new Error(`argument ${name} is missing`);
}
