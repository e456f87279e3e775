CREATE TABLE labels (image TEXT, patient TEXT, edema INTEGER);
INSERT INTO labels VALUES ('1.png', 'A', 1), ('2.png', 'B', 0), ('3.png', 'B', NULL);
