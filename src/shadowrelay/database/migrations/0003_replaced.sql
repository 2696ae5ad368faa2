-- What ran in the database that the one we know of a member took the place of: nothing it said counts any more.
ALTER TABLE member ADD COLUMN replaced TEXT;
