/* Digests by which a plan identifies its inputs. */
#include "ty_base.h"

#include <sha2.h>

ty_digest ty_digest_of(const void *bytes, size_t length)
{
    ty_digest digest;
    SHA256Data(bytes, length, digest.hex); /* allocates only when it is given no buffer */
    return digest;
}
