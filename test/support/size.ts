/** The number of cases: few for `npm test`, all for the suites with `TEST_SIZE=full`. */
const isFull = process.env['TEST_SIZE'] === 'full';

export const sized = (usual: number, full: number): number => (isFull ? full : usual);
