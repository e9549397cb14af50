import { z } from 'zod';

type InQuery<Shape extends z.ZodRawShape> = {
  [Key in keyof Shape]: z.ZodType<z.output<Shape[Key]>, unknown>;
};

/** The fields of a request in paths and queries: texts from which numbers and flags are parsed. */
export function inQuery<Shape extends z.ZodRawShape>({
  shape,
}: z.ZodObject<Shape>): z.ZodObject<InQuery<Shape>> {
  const fields = Object.entries<z.core.$ZodType>(shape).map(([name, field]) => [name, asText(field)]);
  return z.strictObject(Object.fromEntries(fields) as InQuery<Shape>);
}

function asText(field: z.core.$ZodType): z.core.$ZodType {
  if (field instanceof z.ZodOptional) {
    const text = asText(field.unwrap()) as z.ZodType;
    return text.optional().meta(field.meta() ?? {});
  }
  if (field instanceof z.ZodNumber) return wholeNumber(field);
  return field instanceof z.ZodBoolean ? flag(field) : field;
}

export function wholeNumber(field: z.ZodNumber): z.ZodType<number, unknown> {
  const { minValue, maxValue } = field;
  return z
    .string()
    .regex(/^\d{1,15}$/, { error: `must be a whole number from ${minValue} to ${maxValue}` })
    .transform(Number)
    .pipe(field);
}

export function flag(field: z.ZodBoolean): z.ZodType<boolean, unknown> {
  return z
    .enum(['true', 'false'])
    .transform((word) => word === 'true')
    .pipe(field);
}
