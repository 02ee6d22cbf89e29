/* PipeDream profiles. */
#include "import_fuzz.h"
