/**
 * The schemas of the API: they validate, they are the OpenAPI document, and TypeScript holds them to the types of the
 * client that both library and HTTP implement.
 */
import { z } from 'zod';
import type { Json } from '../../conversation/message.js';

/** Schemas that the document names. */
export const components = z.registry<{ id: string }>();

/** Members alone, as JSON has them: interfaces, intersections and inferred types of the same members are the same. */
type Plain<T> = [Json] extends [T] ? T : PlainOf<T>;
type PlainOf<T> = T extends Date ? string : T extends object ? { [Key in keyof T]: Plain<T[Key]> } : T;
/** Identity, which tells a field that may be absent from one that is not there; behind an alias it would be looser. */
export type Same<A, B> =
  (<Any>() => Any extends Plain<A> ? 1 : 2) extends <Any>() => Any extends Plain<B> ? 1 : 2 ? true : false;

interface Documentation<Type> {
  description: string;
  example: Type;
}

/** A named schema of exactly `Type`: does not compile where they differ in a field, its type or whether it may be absent. */
export function component<Type>() {
  return <Schema extends z.ZodType>(
    id: string,
    schema: Schema & (Same<z.output<Schema>, Type> extends true ? unknown : { differsFrom: Type }),
    { description, example }: Documentation<Type>,
  ): Schema => {
    const named = schema.meta({ description, examples: [example] });
    components.add(named, { id });
    return named;
  };
}

/** A value that is checked elsewhere, with what the document says of it. */
export function opaque<Type>(
  document: Readonly<Record<string, unknown>>,
  { is = () => true, otherwise = 'is wrong' }: { is?: (value: unknown) => boolean; otherwise?: string } = {},
): z.ZodType<Type> {
  return z.custom<Type>(is, { error: otherwise }).meta(document);
}

/** A whole number in a query. */
export function wholeInQuery(least: number, most: number) {
  return z
    .string()
    .regex(/^\d{1,15}$/, { error: `must be a whole number from ${least} to ${most}` })
    .transform(Number)
    .pipe(z.int().min(least).max(most));
}

/** `true` or `false` in a query. */
export function flagInQuery() {
  return z
    .enum(['true', 'false'])
    .transform((word) => word === 'true')
    .pipe(z.boolean());
}

/** Text that PostgreSQL can compare ids with. */
export const idText = z.string().refine((id) => !/\u0000|\p{Cs}/u.test(id), {
  error: 'holds a NUL character or half of a surrogate pair',
  params: { hint: 'Use valid Unicode text as an id.' },
});

export const moment = z.iso.datetime();
