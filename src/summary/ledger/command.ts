/** The command of a shell call: an argument of that name, a text or a list of words; null where the call is no such thing. */
export function commandIn(args: string): string | null {
  if (!/"(?:command|cmd|script|code)"/.test(args.slice(0, 200))) return null;
  let fields: unknown;
  try {
    fields = JSON.parse(args);
  } catch {
    return null;
  }
  if (typeof fields !== 'object' || fields === null) return null;
  const { command, cmd, script, code } = fields as Record<string, unknown>;
  const found = command ?? cmd ?? script ?? code;
  if (Array.isArray(found)) return found.map(String).join(' ');
  return typeof found === 'string' ? found : null;
}
