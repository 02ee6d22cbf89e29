/* Importing files of Megatron-LM arguments. */
#include "import_fuzz.h"
