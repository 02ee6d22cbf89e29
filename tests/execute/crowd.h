/* The collectives of compressed exchanges among members of one process, by copying. */
#ifndef TY_TEST_EXECUTE_CROWD_H
#define TY_TEST_EXECUTE_CROWD_H

#include "codec.h"

/** Bytes of one member's part: all of it where it is summed. */
uint64_t exchange_part_bytes(const ty_collective_options *exchange);
/** Bytes of the data that a member has for it: of all members where parts are exchanged. */
uint64_t exchange_bytes(const ty_collective_options *exchange);
/** Runs it on host memory. @param members [count] what each member's ty_codec_exchange says */
void exchange_run(const ty_collective_options *members, uint32_t count);

#endif
