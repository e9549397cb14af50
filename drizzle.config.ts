import { defineConfig } from 'drizzle-kit';

// `npx drizzle-kit generate --name what_changes` writes the next file of migrations/ from src/store/schema/.
export default defineConfig({
  dialect: 'postgresql',
  schema: './src/store/schema/*.ts',
  out: './migrations',
  schemaFilter: ['palimpsest'],
});
