import { z } from 'zod';

interface Bounds {
  min?: number;
  max: number;
  /** The reason why the whole list is refused, found without checking its elements; null for none. */
  refuse?: (given: readonly unknown[]) => { problem: string; hint: string } | null;
}

interface ListDefinition extends z.core.$ZodArrayDef {
  bounds: Bounds;
}

/** An array of zod that checks its bounds first. */
const BoundedArray: z.core.$constructor<z.ZodArray, ListDefinition> = z.core.$constructor(
  'BoundedArray',
  (array: z.ZodArray, definition: ListDefinition) => {
    z.ZodArray.init(array, definition);
    const { max, refuse } = definition.bounds;
    const parse = array._zod.parse.bind(array._zod);
    array._zod.parse = (payload, context) => {
      const input: unknown = payload.value;
      if (!Array.isArray(input)) return parse(payload, context);
      const inst = array;
      if (input.length > max) {
        payload.issues.push({ code: 'too_big', origin: 'array', maximum: max, inclusive: true, input, inst });
        return payload;
      }
      const refused = refuse?.(input);
      if (!refused) return parse(payload, context);
      const { problem: message, hint } = refused;
      payload.issues.push({ code: 'custom', message, params: { hint }, input, inst });
      return payload;
    };
  },
);

/**
 * A list whose length is checked before its elements: zod checks every element even of a list that is too long, and makes an
 * issue of each wrong one.
 */
export function list<Element extends z.ZodType>(element: Element, bounds: Bounds): z.ZodArray<Element> {
  const array = new BoundedArray({ type: 'array', element, bounds }) as z.ZodArray<Element>;
  const limited = array.max(bounds.max);
  return bounds.min === undefined ? limited : limited.min(bounds.min);
}
