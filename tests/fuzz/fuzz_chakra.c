/* Chakra traces. */
#include "import_fuzz.h"
