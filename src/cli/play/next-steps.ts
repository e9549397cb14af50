import type { Stack } from '../servers/stack.js';

/** What to do with what is up, on the last lines of `dev`. */
export function nextSteps(
  { uiUrl, apiUrl }: Pick<Stack, 'uiUrl' | 'apiUrl'>,
  session = 'SESSION',
  env: NodeJS.ProcessEnv = process.env,
): string[] {
  // Whoever typed `npm start` has no `palimpsest` on the PATH.
  const program = env.npm_lifecycle_event === 'start' ? 'npm run -s palimpsest --' : 'palimpsest';
  const path = `/v1/sessions/${encodeURIComponent(session)}/context`;
  return [
    'Everything stays up; Ctrl-C ends it. Look around:',
    ...(uiUrl === null ? [] : [`  ${uiUrl}`]),
    ...(apiUrl === null ? [] : [`  curl ${apiUrl}${path}`]),
    `  ${program} status ${session}`,
    `  ${program} --help`,
  ];
}
