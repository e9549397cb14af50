import tseslint from 'typescript-eslint';

// test/floors.ts holds which folder may import which.
const pure = [
  'errors.ts',
  'numbers.ts',
  'conversation/**',
  'tokens/**',
  'policy/**',
  'limits/**',
  'context/**',
  'summary/**',
  'formats/**',
  'compaction/**',
  'contract/**',
];

export default tseslint.config(
  { ignores: ['**/dist/', 'node_modules/', '.palimpsest/', 'examples/python/.venv/', 'test/clients/'] },
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { project: './tsconfig.json', tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
      '@typescript-eslint/no-import-type-side-effects': 'error',
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_', ignoreRestSiblings: true },
      ],
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      // What was caught is passed on as it came.
      '@typescript-eslint/only-throw-error': ['error', { allowThrowingUnknown: true }],
      '@typescript-eslint/prefer-promise-reject-errors': 'off',
      'no-duplicate-imports': 'error',
      'no-console': 'error',
      eqeqeq: ['error', 'always'],
    },
  },
  {
    files: pure.map((name) => `src/${name}`),
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              regex: '^(?!\\.{1,2}/|node:crypto$|node:module$|lru-cache$|re2js$|zod$)',
              message: 'The pure core does no I/O.',
            },
          ],
        },
      ],
    },
  },
  {
    files: ['workflows/**'],
    rules: {
      '@typescript-eslint/no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              regex:
                '^(?!\\./|@temporalio/(common|workflow)$|\\.\\./src/(errors|numbers|contract/.*|compaction/summarize/.*|temporal/(names|failures))(\\.js)?$)',
              message: 'Workflow code is deterministic and small: no I/O, no heavy packages.',
              allowTypeImports: true,
            },
          ],
        },
      ],
    },
  },
  {
    files: ['src/**'],
    ignores: [
      'src/index.ts',
      'src/http-client/index.ts',
      'src/contract/public.ts',
      'src/compaction/in-memory/index.ts',
    ],
    rules: {
      'no-restricted-syntax': [
        'error',
        {
          selector: 'ExportAllDeclaration, ExportNamedDeclaration[source]',
          message: 'Import it from where it is declared.',
        },
      ],
    },
  },
  {
    files: ['src/cli/**', 'bench/**', 'examples/**', 'test/**'],
    rules: { 'no-console': 'off' },
  },
  {
    // A test reads JSON and asks for one field, stands in for what answers later, and takes methods apart to break them; a
    // wrong type or `[object Object]` fails the test itself.
    files: ['test/**'],
    rules: {
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
      '@typescript-eslint/no-base-to-string': 'off',
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/unbound-method': 'off',
    },
  },
);
