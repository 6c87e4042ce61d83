//! Trails, recorded and made up, against what is taken from them.
