/** Cases of a size: `npm test` takes few, the suites of their own name (`TEST_SIZE=full`) take all of them. */
const isFull = process.env['TEST_SIZE'] === 'full';

export const sized = (usual: number, full: number): number => (isFull ? full : usual);
