import { settings, type Setting } from '../../src/config/schema.js';
import { policyVariables } from '../../src/config/policy-sources.js';

/** README's table of the configuration: one row a setting. */
export function configTable(): string[] {
  return [
    '| in the file | variable | meaning | default |',
    '|---|---|---|---|',
    '| – | `PALIMPSEST_CONFIG` | the configuration file, YAML or JSON | `palimpsest.yaml`, `.yml` or `.json` in the current folder, where there is one |',
    ...settings().flatMap((one) => (one.path[0] === 'policy' ? [row(one), policyRow()] : [row(one)])),
  ];
}

function row({ path, variable, description, schema, otherwise }: Setting): string {
  return `| \`${path.join('.')}\` | \`${variable}\` | ${description} | ${otherwise ?? shown(schema.parse(undefined))} |`;
}

function policyRow(): string {
  const entries = Object.entries(policyVariables);
  const places = entries.map(([, { path }]) => `\`policy.${path.join('.')}\``).join(', ');
  const variables = entries.map(([variable]) => `\`${variable.replace('PALIMPSEST_', '_')}\``).join(', ');
  return (
    `| ${places} | the same with \`PALIMPSEST\` in front of ${variables} | single knobs, before all of \`policy\`; ` +
    'triggers and `keep` as on the command line: `0.85`, `6000`, `tokens=6000,messages=40`, `economic` | none |'
  );
}

function shown(value: unknown): string {
  if (value === undefined || (Array.isArray(value) && value.length === 0)) return 'none';
  if (typeof value === 'number') return value.toLocaleString('en');
  return Array.isArray(value) ? value.join(', ') : `\`${String(value)}\``;
}
