/** The number of cases of a property test: few for `npm test`, all with `TEST_SIZE=full`. */
const isFull = process.env['TEST_SIZE'] === 'full';

export const sized = (usual: number, full: number): number => (isFull ? full : usual);
