// The headers that most tests include: see kernels/precompiled.h. JSON's is left out, since it adds
// two thirds of a second to every file.
#pragma once
#include <gtest/gtest.h>

#include "kernels/precompiled.h"
