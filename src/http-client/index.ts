/** The exports of `palimpsest/http`. */
export { HttpPalimpsest, type HttpOptions } from './client.js';
export * from '../contract/public.js';
